//! Child processes of a test: a command, a log file, and certain death.

use std::{
    ffi::OsString,
    fs::File,
    io,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::{Child, Command, ExitCode, ExitStatus, Stdio},
    sync::atomic::{AtomicU16, Ordering},
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::{Instant, sleep},
};

/// Runs as hub, agent or stand-in member if the first argument names one: what [`crate::fleet::Binaries::in_one`] starts.
pub fn main_of_part(args: &[OsString]) -> Option<ExitCode> {
    let args = args.to_vec();
    match args.first()?.to_str()? {
        "karmada-hub" => Some(karmada_hub::cli::run(args)),
        "karmada-agent" => Some(karmada_agent::process::main(args)),
        "kubesim" => Some(crate::kubesim::main(args)),
        _ => None,
    }
}

/// An address on the loopback at which nobody listens, and nobody comes to: of this process and of each call alone, so
/// that no other test's listener gets its port meanwhile, nor a connection that somebody makes.
///
/// # Panics
/// When the loopback has no such address.
pub fn own_address() -> SocketAddr {
    static CALLS: AtomicU16 = AtomicU16::new(0);
    // 127.0.0.0/8 is all loopback, and 127.0.0.1 is what others take.
    let pid = std::process::id();
    let call = CALLS.fetch_add(1, Ordering::Relaxed);
    let ip = Ipv4Addr::new(127, 1 + (pid >> 8) as u8 % 250, pid as u8, 2 + (call % 250) as u8);
    TcpListener::bind((ip, 0)).and_then(|listener| listener.local_addr()).expect("a free port")
}

/// What an agent says of itself at the address of its health, to who is on the machine.
///
/// # Errors
/// Why it says nothing.
pub async fn agent_status(health: SocketAddr) -> Result<serde_json::Value, String> {
    let asked = async {
        let mut io = TcpStream::connect(health).await?;
        let request = "GET /status.json HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        io.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        io.read_to_string(&mut answer).await?;
        io::Result::Ok(answer)
    };
    let answer = asked.await.map_err(|error| error.to_string())?;
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    serde_json::from_str(body).map_err(|error| format!("{error}: {answer}"))
}

/// A process that can be stopped and started again, always with the same command and log.
#[derive(Debug)]
pub struct Process {
    name: String,
    program: PathBuf,
    args: Vec<OsString>,
    log: PathBuf,
    child: Option<Child>,
}

impl Process {
    /// Starts `program`; its output goes to `DIR/NAME.log`.
    pub fn start<A: Into<OsString>>(
        dir: &Path,
        name: &str,
        program: &Path,
        args: impl IntoIterator<Item = A>,
    ) -> io::Result<Self> {
        let mut process = Self {
            name: name.into(),
            program: program.into(),
            args: args.into_iter().map(Into::into).collect(),
            log: dir.join(format!("{name}.log")),
            child: None,
        };
        process.spawn()?;
        Ok(process)
    }

    /// Starts another one of the same program, with these arguments in place of those that begin alike.
    pub fn another(&self, dir: &Path, name: &str, changes: &[(&str, String)]) -> io::Result<Self> {
        let (args, log) = (self.args.clone(), dir.join(format!("{name}.log")));
        let mut process = Self { name: name.into(), program: self.program.clone(), args, log, child: None };
        for (prefix, arg) in changes {
            process.set_arg(prefix, arg);
        }
        process.spawn()?;
        Ok(process)
    }

    /// Starts it again, if it does not run.
    pub fn spawn(&mut self) -> io::Result<()> {
        if self.is_running() {
            return Ok(());
        }
        let log = File::options().create(true).append(true).open(&self.log)?;
        let child = Command::new(&self.program)
            .args(&self.args)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;
        self.child = Some(child);
        Ok(())
    }

    /// Replaces an argument that begins with `prefix`, for the next start.
    pub fn set_arg(&mut self, prefix: &str, value: impl Into<OsString>) {
        let value = value.into();
        match self.args.iter_mut().find(|a| a.to_string_lossy().starts_with(prefix)) {
            Some(arg) => *arg = value,
            None => self.args.push(value),
        }
    }

    /// Whether it runs.
    pub fn is_running(&mut self) -> bool {
        self.child.as_mut().is_some_and(|c| matches!(c.try_wait(), Ok(None)))
    }

    /// Its process id, while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Resident memory in bytes.
    pub fn resident(&self) -> Option<u64> {
        self.memory("VmRSS:")
    }

    /// The most of it that there has been, in bytes.
    pub fn peak(&self) -> Option<u64> {
        self.memory("VmHWM:")
    }

    fn memory(&self, field: &str) -> Option<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid()?)).ok()?;
        let line = status.lines().find(|line| line.starts_with(field))?;
        line.split_whitespace().nth(1)?.parse::<u64>().ok().map(|kib| kib * 1024)
    }

    /// SIGKILL: what a power cut is to a process.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// SIGTERM, and the exit status if it ends within `limit`.
    pub async fn terminate(&mut self, limit: Duration) -> Option<ExitStatus> {
        self.signal("TERM");
        self.exit(limit).await
    }

    /// The exit status, if it ends within `limit`.
    pub async fn exit(&mut self, limit: Duration) -> Option<ExitStatus> {
        let end = Instant::now() + limit;
        while Instant::now() < end {
            if let Some(Ok(Some(status))) = self.child.as_mut().map(Child::try_wait) {
                self.child = None;
                return Some(status);
            }
            sleep(Duration::from_millis(20)).await;
        }
        None
    }

    /// Sends a signal by name, `STOP` or `CONT` for a machine that sleeps.
    pub fn signal(&self, signal: &str) {
        if let Some(pid) = self.pid() {
            let _ = Command::new("kill").arg(format!("-{signal}")).arg(pid.to_string()).status();
        }
    }

    /// The end of its log, for a failing test to show.
    pub fn log_tail(&self, lines: usize) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_else(|e| format!("no log: {e}"));
        let all: Vec<&str> = text.lines().collect();
        format!(
            "--- {} ({})\n{}",
            self.name,
            self.log.display(),
            all[all.len().saturating_sub(lines)..].join("\n")
        )
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            eprintln!("{}", self.log_tail(40));
        }
    }
}
