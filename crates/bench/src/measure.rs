//! Runs one command to its end and takes its measure: time, memory, faults, output.
//!
//! The kernel gives a process the sum over *all* its finished children, so this belongs into a process that runs
//! nothing else: `pleat-bench measure`.

use std::io::{Read, Result};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::signal::{SigSet, Signal, killpg};
use nix::sys::time::TimeValLike;
use nix::unistd::Pid;

use crate::tree::{Root, Watcher};

/// As much of a stream as is kept; the sum covers all of it.
const KEPT_BYTES: usize = 64 << 10;

/// A run that has ended.
#[derive(Clone, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Measured {
    /// Exit status, if it ended by itself.
    pub status: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// It took longer than it may and was ended for that.
    pub timed_out: bool,
    /// From start to end.
    pub wall_s: f64,
    /// In the program, over all processes of it.
    pub user_s: f64,
    /// In the kernel on its behalf.
    pub system_s: f64,
    /// Largest resident set of any single process of it, file pages included.
    pub max_rss_bytes: u64,
    /// Faults that waited for a device.
    pub major_faults: u64,
    /// Faults that did not.
    pub minor_faults: u64,
    /// Most anonymous memory of the whole tree, if it was watched.
    pub anon_peak_bytes: Option<u64>,
    /// The beginning of what it wrote.
    pub stdout: String,
    /// FNV-1a over all that it wrote.
    pub stdout_sum: String,
    /// The beginning of its complaints.
    pub stderr: String,
}

/// Runs `command`; ends its process group after `timeout` or when this process is told to end. With `watch` the
/// anonymous memory of its tree is sampled, of which it is that root, that often.
pub fn run(mut command: Command, timeout: Duration, watch: Option<(Root, Duration)>) -> Result<Measured> {
    // Blocked here and in every thread to come, and taken by a thread of its own: no handler, no unsafe code.
    let asked_to_end = SigSet::from_iter([Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP]);
    asked_to_end.thread_block()?;
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    // On a thread that hears them: what it starts inherits that, and may be ended by others.
    let begin = || {
        asked_to_end.thread_unblock()?;
        std::io::Result::Ok((Instant::now(), command.spawn()?))
    };
    let begun = std::thread::scope(|scope| scope.spawn(begin).join());
    let (start, mut child) = begun.expect("it does not panic")?;
    let group = Pid::from_raw(child.id() as i32);
    std::thread::spawn(move || {
        let _ = asked_to_end.wait();
        let _ = killpg(group, Signal::SIGKILL);
        std::process::exit(130);
    });
    let watcher = watch.map(|(root, interval)| Watcher::start(child.id(), root, interval));
    let stdout = drain(child.stdout.take().expect("piped above"));
    let stderr = drain(child.stderr.take().expect("piped above"));
    let (ended, end) = mpsc::channel::<()>();
    let guard = std::thread::spawn(move || {
        let late = end.recv_timeout(timeout) == Err(mpsc::RecvTimeoutError::Timeout);
        if late {
            let _ = killpg(group, Signal::SIGKILL);
        }
        late
    });
    let status = child.wait()?;
    let wall_s = start.elapsed().as_secs_f64();
    drop(ended);
    let timed_out = guard.join().expect("the guard does not panic");
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let seconds = |time: nix::sys::time::TimeVal| time.num_microseconds() as f64 / 1e6;
    let (stdout, stdout_sum) = stdout.join().expect("a reader does not panic");
    Ok(Measured {
        status: status.code(),
        signal: status.signal(),
        timed_out,
        wall_s,
        user_s: seconds(usage.user_time()),
        system_s: seconds(usage.system_time()),
        max_rss_bytes: (usage.max_rss() as u64) << 10,
        major_faults: usage.major_page_faults() as u64,
        minor_faults: usage.minor_page_faults() as u64,
        anon_peak_bytes: watcher.map(|watcher| watcher.stop().anon_bytes),
        stdout,
        stdout_sum: format!("{stdout_sum:016x}"),
        stderr: stderr.join().expect("a reader does not panic").0,
    })
}

/// Reads a stream to its end on a thread: its beginning, and the FNV-1a sum over all of it.
fn drain(mut stream: impl Read + Send + 'static) -> std::thread::JoinHandle<(String, u64)> {
    std::thread::spawn(move || {
        let (mut kept, mut sum) = (Vec::new(), FNV_START);
        let mut buffer = vec![0; 1 << 16];
        while let Ok(count @ 1..) = stream.read(&mut buffer) {
            sum = fnv(sum, &buffer[..count]);
            kept.extend_from_slice(&buffer[..count.min(KEPT_BYTES - kept.len())]);
        }
        (String::from_utf8_lossy(&kept).into_owned(), sum)
    })
}

/// Where an FNV-1a sum starts.
pub const FNV_START: u64 = 0xcbf2_9ce4_8422_2325;

/// Goes on with an FNV-1a sum.
pub fn fnv(sum: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(sum, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As a script does it with a server.
    #[test]
    fn what_is_measured_can_be_ended() {
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 60 & kill -TERM $!; wait $!; echo $?"]);
        let measured = run(command, Duration::from_secs(20), None).unwrap();
        assert_eq!((&measured.stdout[..], measured.timed_out), ("143\n", false));
    }

    #[test]
    fn fnv_vectors() {
        assert_eq!(fnv(FNV_START, b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv(FNV_START, b"foobar"), 0x8594_4171_f739_67e8);
    }
}
