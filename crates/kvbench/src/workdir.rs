//! Where databases go: a temporary directory that always goes away again, or the user's directory, which never does.

use crate::failure::{Failure, Result};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, Once, PoisonError};
use tempfile::TempDir;

/// The directory of one run.
pub(crate) enum Workdir {
    Temporary(TempDir),
    Given(PathBuf),
}

impl Workdir {
    pub(crate) fn new(given: Option<&Path>) -> Result<Workdir> {
        if let Some(dir) = given {
            return Ok(Workdir::Given(dir.to_owned()));
        }
        let parent = std::env::temp_dir();
        let dir = tempfile::Builder::new().prefix("kvbench-").tempdir_in(&parent);
        let dir = dir.map_err(|e| Failure::io("make a temporary directory in", &parent, &e))?;
        remove_when_interrupted(dir.path());
        Ok(Workdir::Temporary(dir))
    }

    pub(crate) fn path(&self) -> &Path {
        match self {
            Workdir::Temporary(dir) => dir.path(),
            Workdir::Given(dir) => dir,
        }
    }
}

/// What lies in a directory that the user wants a database in.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Contents {
    /// Nothing, or the directory is not there yet.
    Nothing,
    Database,
}

/// Looks before the engine does, for the mistakes that a person at a command line makes.
pub(crate) fn contents(dir: &Path) -> Result<Contents> {
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Contents::Nothing),
        Err(e) if e.kind() == std::io::ErrorKind::NotADirectory => {
            // It may be a directory above that is none.
            let file = dir.ancestors().find(|path| path.exists()).unwrap_or(dir);
            return Err(Failure::failed(format!(
                "{} is a file; a database is a directory: choose another path with --db",
                file.display()
            )));
        }
        Err(e) => return Err(Failure::io("read directory", dir, &e)),
    };
    if dir.join("CURRENT").exists() {
        return Ok(Contents::Database);
    }
    if entries.count() == 0 {
        return Ok(Contents::Nothing);
    }
    Err(Failure::failed(format!(
        "{} holds files but no siftdb database (no file CURRENT): choose another directory with --db",
        dir.display()
    )))
}

/// The same look at a directory that is to hold several databases, the given ones among them: each must be new, and what
/// else is there must be databases too.
pub(crate) fn room_for(parent: &Path, databases: &[PathBuf]) -> Result<()> {
    let used = |dir: &Path| {
        Failure::failed(format!(
            "{} holds a database already: choose another directory with --db, or remove it",
            dir.display()
        ))
    };
    for dir in databases {
        if parent.is_dir() && contents(dir)? == Contents::Database {
            return Err(used(dir));
        }
    }
    if holds_databases_only(parent) {
        return Ok(());
    }
    match contents(parent)? {
        Contents::Nothing => Ok(()),
        Contents::Database => Err(used(parent)),
    }
}

fn holds_databases_only(dir: &Path) -> bool {
    let Ok(entries) = std::fs::read_dir(dir) else { return false };
    entries.flatten().all(|entry| entry.path().join("CURRENT").exists())
}

static INTERRUPTED: Mutex<Option<PathBuf>> = Mutex::new(None);

/// Ctrl-C and a termination request end the process without running destructors: a handler removes the directory.
fn remove_when_interrupted(dir: &Path) {
    static HANDLER: Once = Once::new();
    *INTERRUPTED.lock().unwrap_or_else(PoisonError::into_inner) = Some(dir.to_owned());
    HANDLER.call_once(|| {
        // Without a handler only the cleaning is lost.
        let _ = ctrlc::set_handler(|| {
            if let Some(dir) = &*INTERRUPTED.lock().unwrap_or_else(PoisonError::into_inner) {
                remove(dir);
            }
            std::process::exit(130);
        });
    });
}

/// The engine goes on writing meanwhile. Renamed first, the directory is out of its way: no new file gets into it.
fn remove(dir: &Path) {
    let aside = dir.with_extension("removed");
    let _ = std::fs::rename(dir, &aside);
    for _ in 0..10 {
        if std::fs::remove_dir_all(&aside).is_ok() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_temporary_directory_goes_and_a_given_one_stays() {
        let parent = tempfile::tempdir().unwrap();
        let given = Workdir::new(Some(parent.path())).unwrap();
        drop(given);
        assert!(parent.path().exists());
        let temporary = Workdir::new(None).unwrap();
        let path = temporary.path().to_owned();
        std::fs::write(path.join("f"), "x").unwrap();
        drop(temporary);
        assert!(!path.exists());
    }

    #[test]
    fn foreign_directories_and_files_are_refused_with_advice() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(contents(dir.path()).unwrap(), Contents::Nothing);
        assert_eq!(contents(&dir.path().join("new")).unwrap(), Contents::Nothing);
        let file = dir.path().join("letter.txt");
        std::fs::write(&file, "x").unwrap();
        assert!(contents(&file).unwrap_err().to_string().contains("is a file"));
        let below = contents(&file.join("sub/db")).unwrap_err().to_string();
        assert!(below.contains("letter.txt is a file"), "{below}");
        assert!(contents(dir.path()).unwrap_err().to_string().contains("no siftdb database"));
        std::fs::write(dir.path().join("CURRENT"), "").unwrap();
        assert_eq!(contents(dir.path()).unwrap(), Contents::Database);
    }

    #[test]
    fn several_databases_go_beside_others_but_not_into_foreign_directories() {
        let dir = tempfile::tempdir().unwrap();
        let parent = dir.path().join("dbs");
        let database = |name: &str| vec![parent.join(name)];
        room_for(&parent, &database("none")).unwrap();
        std::fs::create_dir_all(parent.join("none")).unwrap();
        std::fs::write(parent.join("none/CURRENT"), "").unwrap();
        room_for(&parent, &database("bloom-9")).unwrap();
        let message = room_for(&parent, &database("none")).unwrap_err().to_string();
        assert!(message.contains("none holds a database already"), "{message}");
        let message = room_for(&parent.join("none"), &database("none/none")).unwrap_err().to_string();
        assert!(message.contains("none holds a database already"), "{message}");
        std::fs::write(parent.join("letter"), "x").unwrap();
        let message = room_for(&parent, &database("bloom-9")).unwrap_err().to_string();
        assert!(message.contains("dbs holds files but no siftdb database"), "{message}");
    }

    #[test]
    fn an_interrupted_directory_is_removed_with_its_files() {
        let dir = tempfile::tempdir().unwrap().keep();
        std::fs::write(dir.join("f"), "x").unwrap();
        remove(&dir);
        assert!(!dir.exists() && !dir.with_extension("removed").exists());
    }
}
