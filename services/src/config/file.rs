//! The bytes of a configuration file, which may also be a pipe: `--config <(decrypt …)`.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;

/// Longest silence of a pipe or a device that is named as the file: one that nobody writes
/// to would be waited for without an end and without a word.
pub(super) const MAX_SILENCE: Duration = Duration::from_secs(10);

/// Reads the file to its end, or to `limit` bytes.
///
/// # Errors
/// What the system says; [`io::ErrorKind::TimedOut`] for a pipe or device from which
/// nothing came for `silence`.
pub(super) fn read(path: &Path, limit: u64, silence: Duration) -> io::Result<Vec<u8>> {
    // Of a pipe without a writer the opening alone would wait. Regular files take no notice.
    let file = File::options()
        .read(true)
        .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
        .open(path)?;
    let mut bytes = Vec::new();
    if file.metadata()?.is_file() {
        file.take(limit).read_to_end(&mut bytes)?;
        return Ok(bytes);
    }
    let mut rest = file.take(limit);
    loop {
        wait(rest.get_ref(), silence)?;
        match rest.read_to_end(&mut bytes) {
            // What came before the pipe ran dry is kept in `bytes`.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            read => return read.map(|_| bytes),
        }
    }
}

/// Waits until something can be read, or the last writer has gone.
fn wait(file: &File, silence: Duration) -> io::Result<()> {
    let limit = Timespec::try_from(silence).map_err(io::Error::other)?;
    let mut files = [PollFd::new(file, PollFlags::IN)];
    loop {
        match poll(&mut files, Some(&limit)) {
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
            Ok(0) => {
                return Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    format!(
                        "it is no regular file, and nothing came from it for {} s; name a file, \
                         or a pipe that is written to",
                        silence.as_secs_f32()
                    ),
                ));
            }
            Ok(_) => return Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::path::PathBuf;

    use super::*;

    const SHORT: Duration = Duration::from_millis(200);
    const LONG: Duration = Duration::from_secs(60);

    fn fifo() -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pipe");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &path,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
            0,
        )
        .unwrap();
        (directory, path)
    }

    #[test]
    fn a_pipe_without_a_writer_is_not_waited_for_without_end() {
        let (_directory, path) = fifo();
        let error = read(&path, 100, SHORT).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(
            error.to_string().contains("for 0.2 s; name a file"),
            "{error}"
        );
    }

    #[test]
    fn a_pipe_that_is_held_open_and_not_written_to_is_given_up() {
        let (_directory, path) = fifo();
        // For reading too, so that the opening does not wait for the reader.
        let mut writer = File::options().read(true).write(true).open(&path).unwrap();
        writer.write_all(b"half").unwrap();
        let error = read(&path, 100, SHORT).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn a_pipe_is_read_to_its_end_over_the_pauses_of_its_writer() {
        let (_directory, path) = fifo();
        let at = path.clone();
        let writer = std::thread::spawn(move || {
            let mut pipe = File::options().write(true).open(at).unwrap();
            // More than a pipe holds, so that the reader comes to an empty one between.
            for _ in 0..3 {
                pipe.write_all(&[b'x'; 100_000]).unwrap();
                std::thread::yield_now();
            }
        });
        let bytes = read(&path, 1 << 20, LONG).unwrap();
        writer.join().unwrap();
        assert_eq!(bytes, vec![b'x'; 300_000]);
    }

    #[test]
    fn no_more_than_the_limit_is_read_of_what_does_not_end() {
        assert_eq!(read(Path::new("/dev/zero"), 100, LONG).unwrap(), [0; 100]);
    }
}
