//! Tables of text that fit 80 columns, and numbers as people read them.

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};

pub(crate) const WIDTH: u16 = 80;

/// A table without frames: the first `left` columns to the left, the others to the right, one blank between them.
pub(crate) fn table(header: &[&str], left: usize, rows: &[Vec<String>]) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic).set_width(WIDTH);
    table.set_header(header);
    table.add_rows(rows);
    let last = header.len().saturating_sub(1);
    for (index, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, u16::from(index < last)));
        column.set_cell_alignment(if index < left { CellAlignment::Left } else { CellAlignment::Right });
    }
    let lines: Vec<String> = table.lines().map(|line| line.trim_end().to_owned() + "\n").collect();
    lines.concat()
}

/// 1234567 as "1,234,567".
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number of bytes with a binary unit.
pub(crate) fn bytes(number: u64) -> String {
    let (mut value, mut unit) = (number as f64, "B");
    for larger in ["KiB", "MiB", "GiB", "TiB"] {
        if value < 1024.0 {
            break;
        }
        (value, unit) = (value / 1024.0, larger);
    }
    if unit == "B" { format!("{number} B") } else { format!("{value:.1} {unit}") }
}

/// A rate in per cent with three decimals, or a dash.
pub(crate) fn percent(rate: Option<f64>) -> String {
    rate.map_or_else(|| "-".into(), |rate| format!("{:.3} %", rate * 100.0))
}

/// Words broken into lines of at most `WIDTH`; lines after the first are indented by two.
pub(crate) fn wrapped(text: &str) -> String {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().map_or(0, |line| line.chars().count());
        if line > 2 && line + 1 + word.chars().count() > usize::from(WIDTH) {
            lines.push(format!("  {word}"));
        } else if let Some(last) = lines.last_mut() {
            if !last.is_empty() {
                last.push(' ');
            }
            last.push_str(word);
        }
    }
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_no_blank_ends_a_line() {
        let text = table(&["a", "b"], 1, &[vec!["x".into(), "1".into()], vec!["yyy".into(), "22".into()]]);
        assert_eq!(text, "a    b\nx    1\nyyy 22\n");
    }

    #[test]
    fn too_wide_a_table_is_folded_to_80_columns() {
        let rows = vec![vec!["word ".repeat(30), "9".repeat(60)]];
        assert!(table(&["first", "second"], 1, &rows).lines().all(|line| line.chars().count() <= 80));
    }

    #[test]
    fn numbers_read_well() {
        let texts: Vec<String> = [0, 999, 1_000, 1_234_567].into_iter().map(grouped).collect();
        assert_eq!(texts, ["0", "999", "1,000", "1,234,567"]);
        assert_eq!(bytes(1_023), "1023 B");
        assert_eq!(bytes(1_536), "1.5 KiB");
        assert_eq!(bytes(u64::MAX), "16777216.0 TiB");
        assert_eq!((percent(Some(0.00963)), percent(None)), ("0.963 %".into(), "-".into()));
    }

    #[test]
    fn sentences_are_broken_between_words() {
        let text = wrapped(&"twelve chars ".repeat(20));
        assert!(text.lines().all(|line| line.chars().count() <= 80));
        assert_eq!(text.split_whitespace().count(), 40);
        assert_eq!(wrapped("short"), "short\n");
    }
}
