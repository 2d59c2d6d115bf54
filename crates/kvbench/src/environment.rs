//! Where a result was made. A figure without it cannot be compared with anything.

use serde::Serialize;
use std::fmt;
use std::path::Path;

/// The machine and the build.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Environment {
    pub(crate) version: &'static str,
    /// "release", or "debug": then throughput means nothing.
    pub(crate) build: &'static str,
    pub(crate) kernel: String,
    pub(crate) cpu: String,
    pub(crate) cpus: usize,
    pub(crate) memory_bytes: Option<u64>,
    pub(crate) file_system: String,
    pub(crate) seed: u64,
    /// How the caches were before the measured reads.
    pub(crate) cache_state: String,
}

impl Environment {
    /// As seen now, for a database below `dir`.
    pub(crate) fn detect(dir: &Path, seed: u64, cache_state: impl Into<String>) -> Environment {
        Environment {
            version: env!("CARGO_PKG_VERSION"),
            build: if cfg!(debug_assertions) { "debug" } else { "release" },
            kernel: kernel(&read("/proc/sys/kernel/osrelease")),
            cpu: field(&read("/proc/cpuinfo"), "model name").unwrap_or(std::env::consts::ARCH).to_owned(),
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: memory_bytes(&read("/proc/meminfo")),
            file_system: file_system(&read("/proc/mounts"), dir).unwrap_or("unknown").to_owned(),
            seed,
            cache_state: cache_state.into(),
        }
    }
}

/// Empty where there is no such file (not Linux).
fn read(path: &str) -> String {
    std::fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
}

fn kernel(release: &str) -> String {
    format!("{} {}", std::env::consts::OS, release.trim()).trim_end().to_owned()
}

/// The first `name : value` line's value.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim())
}

fn memory_bytes(meminfo: &str) -> Option<u64> {
    let kibibytes: u64 = field(meminfo, "MemTotal")?.split_whitespace().next()?.parse().ok()?;
    Some(kibibytes * 1024)
}

/// The type of the mount that holds `dir`: the one with the longest matching path, the later of equals.
fn file_system<'a>(mounts: &'a str, dir: &Path) -> Option<&'a str> {
    let dir = std::path::absolute(dir).ok()?;
    let dir = dir.canonicalize().unwrap_or(dir);
    let entries = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ').skip(1);
        Some((words.next()?, words.next()?))
    });
    let holding = entries.filter(|(point, _)| dir.starts_with(point));
    holding.max_by_key(|(point, _)| point.len()).map(|(_, kind)| kind)
}

impl fmt::Display for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let memory = self
            .memory_bytes
            .map_or("unknown".into(), |bytes| format!("{:.1} GiB", bytes as f64 / (1u64 << 30) as f64));
        writeln!(f, "kvbench      {} ({} build), seed {}", self.version, self.build, self.seed)?;
        if self.build == "debug" {
            writeln!(f, "             a debug build: counters are right, ops/s mean nothing")?;
        }
        writeln!(f, "machine      {:.50} × {}", self.cpu, self.cpus)?;
        writeln!(f, "             {:.28}, memory {memory}, files on {:.15}", self.kernel, self.file_system)?;
        writeln!(f, "caches       {}", self.cache_state.replace("; ", ";\n             "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_in_proc_files() {
        let cpuinfo = "processor\t: 0\nmodel name\t: Fast CPU @ 3 GHz\nmodel name\t: other\n";
        assert_eq!(field(cpuinfo, "model name"), Some("Fast CPU @ 3 GHz"));
        assert_eq!(memory_bytes("MemTotal:       1024 kB\n"), Some(1 << 20));
        assert_eq!((field("", "model name"), memory_bytes("")), (None, None));
    }

    #[test]
    fn the_deepest_and_latest_mount_holds_the_directory() {
        let mounts = "a / ext4 rw\nb /proc proc rw\nc /nowhere xfs rw\nd /nowhere/deep tmpfs rw\ne / overlay rw\n";
        assert_eq!(file_system(mounts, Path::new("/nowhere/deep/x")), Some("tmpfs"));
        assert_eq!(file_system(mounts, Path::new("/nowhere/deeper")), Some("xfs"));
        assert_eq!(file_system(mounts, Path::new("/elsewhere")), Some("overlay"));
        assert_eq!(file_system("", Path::new("/x")), None);
    }

    #[test]
    fn the_text_fits_80_columns() {
        let mut environment = Environment::detect(Path::new("."), u64::MAX, "warm");
        environment.cpu = "x".repeat(200);
        environment.kernel = "y".repeat(200);
        environment.memory_bytes = Some(1 << 50);
        assert!(environment.to_string().lines().all(|line| line.chars().count() <= 80), "{environment}");
    }
}
