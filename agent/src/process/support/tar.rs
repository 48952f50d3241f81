//! Archives as POSIX has them (ustar): of small files with short names, which is all that is needed here.

use std::io::{self, Write};

/// What everything is a multiple of.
const BLOCK: usize = 512;

/// The longest name of a file.
const NAME: usize = 100;

/// An archive that is being written.
pub(super) struct Archive<W>(W);

impl<W: Write> Archive<W> {
    pub(super) fn new(to: W) -> Self {
        Self(to)
    }

    /// Adds a file that was made at that second.
    pub(super) fn add(&mut self, name: &str, content: &[u8], seconds: u64) -> io::Result<()> {
        let mut header = [0u8; BLOCK];
        let mut put = |at: usize, bytes: &[u8]| header[at..at + bytes.len()].copy_from_slice(bytes);
        if name.len() > NAME {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the name of a file is too long"));
        }
        put(0, name.as_bytes());
        put(100, b"0000600\0");
        put(108, b"0000000\0");
        put(116, b"0000000\0");
        put(124, format!("{:011o}\0", content.len()).as_bytes());
        put(136, format!("{:011o}\0", seconds.min(0o77_777_777_777)).as_bytes());
        // The sum is taken with blanks in its place.
        put(148, b"        ");
        put(156, b"0");
        put(257, b"ustar\x0000");
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        self.0.write_all(&header)?;
        self.0.write_all(content)?;
        let rest = content.len().next_multiple_of(BLOCK) - content.len();
        self.0.write_all(&[0; BLOCK][..rest])
    }

    /// Ends the archive.
    pub(super) fn end(mut self) -> io::Result<W> {
        self.0.write_all(&[0; 2 * BLOCK])?;
        Ok(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_by_tar() {
        let folder = tempfile::tempdir().unwrap();
        let mut archive = Archive::new(Vec::new());
        let long = vec![b'x'; 1500];
        for (name, content) in [("a/b.txt", &b"one\n"[..]), ("a/empty", b""), ("a/long", &long)] {
            archive.add(name, content, 1_767_323_045).unwrap();
        }
        assert!(archive.add(&"n".repeat(NAME + 1), b"", 0).is_err());
        let path = folder.path().join("x.tar");
        std::fs::write(&path, archive.end().unwrap()).unwrap();
        let mut tar = std::process::Command::new("tar");
        let read = tar.arg("-xf").arg(&path).arg("-C").arg(folder.path()).status();
        // A machine without tar has nothing to compare with.
        let Ok(read) = read else { return };
        assert!(read.success());
        let content = |name: &str| std::fs::read(folder.path().join(name)).unwrap();
        assert_eq!(
            (content("a/b.txt"), content("a/empty"), content("a/long")),
            (b"one\n".to_vec(), vec![], long)
        );
    }
}
