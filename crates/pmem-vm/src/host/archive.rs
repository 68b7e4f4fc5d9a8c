//! A cpio archive, as the kernel unpacks it: "newc", without checksums. [Linux: buffer-format.rst]

const MODE_FOLDER: u32 = 0o040_755;
const MODE_PROGRAM: u32 = 0o100_755;

/// An archive under construction. A folder comes before its content.
#[derive(Default)]
pub struct Archive {
    bytes: Vec<u8>,
    entries: u32,
}

impl Archive {
    /// Adds a folder.
    pub fn folder(&mut self, name: &str) {
        self.entry(name, MODE_FOLDER, &[]);
    }

    /// Adds a file that may be executed.
    pub fn file(&mut self, name: &str, content: &[u8]) {
        self.entry(name, MODE_PROGRAM, content);
    }

    /// The whole archive.
    #[must_use]
    pub fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, &[]);
        self.bytes
    }

    fn entry(&mut self, name: &str, mode: u32, content: &[u8]) {
        self.entries += 1;
        let len = u32::try_from(content.len()).expect("programs are shorter than 4 GiB");
        let name_len = name.len() as u32 + 1;
        // inode, mode, user, group, links, time, length, device and its own (two words each), name,
        // checksum
        let fields = [self.entries, mode, 0, 0, 1, 0, len, 0, 0, 0, 0, name_len, 0];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes.extend_from_slice(format!("{field:08X}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(content);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn archive_has_the_newc_format() {
        let mut archive = Archive::default();
        archive.folder("bin");
        archive.file("bin/a", b"hello");
        let bytes = archive.finish();
        let text = String::from_utf8(bytes).expect("all of it is text");
        let folder = "070701000000010000\
                      41ED00000000000000000000000100000000000000000000000000000000000000000000000000000004\
                      00000000bin\0\0\0";
        assert!(text.starts_with(folder), "{text:?}");
        assert_eq!(folder.len(), 116, "a header of 110, the name, filled to words");
        assert!(
            text[folder.len()..].contains(
                "00000006\
                      00000000bin/a\0hello\0\0\x00070701"
            ),
            "{text:?}"
        );
        assert!(text.ends_with("TRAILER!!!\0\0\0\0") && text.len().is_multiple_of(4), "{text:?}");
    }
}
