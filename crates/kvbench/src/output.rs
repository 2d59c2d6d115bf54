//! Where results go: text to standard output, JSON to a file or to standard output (the text then to standard error, so
//! that what is piped on is one JSON document), progress to the terminal behind standard error.

use crate::failure::{Failure, Result};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

pub(crate) struct Output {
    text: Box<dyn Write>,
    json: Json,
}

enum Json {
    Not,
    Stdout,
    File(File, PathBuf),
}

impl Output {
    /// Opens the JSON file at once: a wrong path is better said before the work than after it.
    pub(crate) fn new(json: Option<&Path>) -> Result<Output> {
        let json = match json {
            None => Json::Not,
            Some(path) if path == Path::new("-") => Json::Stdout,
            Some(path) => Json::File(File::create(path).map_err(|e| Failure::io("create", path, &e))?, path.to_owned()),
        };
        let text: Box<dyn Write> =
            if matches!(json, Json::Stdout) { Box::new(io::stderr()) } else { Box::new(io::stdout()) };
        Ok(Output { text, json })
    }

    /// Writes `text`, and a line end if it has none.
    pub(crate) fn print(&mut self, text: impl AsRef<str>) -> Result<()> {
        let text = text.as_ref();
        self.text.write_all(text.as_bytes())?;
        if !text.ends_with('\n') {
            self.text.write_all(b"\n")?;
        }
        Ok(self.text.flush()?)
    }

    /// Writes the whole result where --json says.
    pub(crate) fn json(&mut self, result: &impl Serialize) -> Result<()> {
        if matches!(self.json, Json::Not) {
            return Ok(());
        }
        let mut text =
            serde_json::to_string_pretty(result).map_err(|e| Failure::failed(format!("cannot make JSON: {e}")))?;
        text.push('\n');
        match &mut self.json {
            Json::Not => Ok(()),
            Json::Stdout => Ok(io::stdout().write_all(text.as_bytes())?),
            Json::File(file, path) => file.write_all(text.as_bytes()).map_err(|e| Failure::io("write", path, &e)),
        }
    }
}

/// The exact command line, as far as it is text.
pub(crate) fn command_line() -> Vec<String> {
    std::env::args_os().map(|arg| arg.to_string_lossy().into_owned()).collect()
}

/// A bar for `total` steps, as wide as the terminal; nothing is drawn where standard error is no terminal. A longer
/// name is cut, so that 60 columns leave room for a bar, and a line never wraps.
pub(crate) fn progress(what: impl Into<String>, total: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{msg:28!} {wide_bar} {percent:>3} % {eta:>4}");
    let bar = ProgressBar::new(total).with_message(what.into());
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}

/// Steps between two updates of a bar: a bar must not slow what it watches.
pub(crate) const PROGRESS_STEP: u64 = 4_096;
