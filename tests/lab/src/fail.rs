//! `rdmesh-lab fail`: another failure in a demo that was left running. The demo holds the
//! host's control channel, so it is asked through a socket in its directory.

use anyhow::{Context, Result, bail, ensure};
use rdmesh_lab::lab::{Lab, Task, TracedHost};
use rdmesh_lab::verbs::{Report, Verbs};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::time::timeout;

/// Name of the socket in the demo's directory.
const SOCKET: &str = "fail";

/// Bytes of a scenario's name and its end of line; the longest name has 25.
const MAX_QUESTION_BYTES: u64 = 64;

/// Whoever connects asks at once.
const QUESTION_LIMIT: Duration = Duration::from_secs(5);

/// Two calls of the command line and a program that fails at once, on a busy machine.
const ANSWER_LIMIT: Duration = Duration::from_secs(180);

/// The program fails at once; a busy machine is given its time.
const PROGRAM_LIMIT: Duration = Duration::from_secs(60);

/// First line of an answer: what was asked for was done.
const DONE: &str = "done\n";
/// First line of an answer: it was not; the rest says why.
const REFUSED: &str = "refused\n";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A scenario of rdmesh-verbs; an unknown one is answered with the list of them.
    scenario: String,
    /// The demo's directory, as `rdmesh-lab demo --keep` prints it.
    #[arg(long, value_name = "DIRECTORY")]
    lab: PathBuf,
}

pub(crate) async fn run(args: &Args) -> Result<ExitCode> {
    print!("{}", ask(&args.lab.join(SOCKET), &args.scenario).await?);
    Ok(ExitCode::SUCCESS)
}

/// Makes a failure for each who asks, one after the other; job ids count on from `job`.
pub(crate) async fn serve(lab: &Lab, host: &TracedHost, job: u64) -> Result<()> {
    let path = lab.directory().join(SOCKET);
    let listener = UnixListener::bind(&path)
        .with_context(|| format!("cannot listen at {}", path.display()))?;
    let mut job = job;
    answer_all(&listener, async |scenario| {
        job += 1;
        fail(lab, host, &job.to_string(), &scenario).await
    })
    .await
}

/// A job of one rank, which runs the scenario.
async fn fail(lab: &Lab, host: &TracedHost, job: &str, scenario: &str) -> Result<String> {
    let placed = format!("{}:ranks=0:devices=rxe0", host.name());
    rdmesh(lab, &["job", "start", job, "--host", &placed]).await?;
    let exec = Verbs::new(scenario).exec();
    let exit = host.run_task(&Task::of(job), exec, PROGRAM_LIMIT).await;
    let none_failed = exit
        .as_ref()
        .is_ok_and(|exit| Report::parse(exit).is_ok_and(|report| report.failed() == 0));
    let code = if none_failed { "0" } else { "1" };
    rdmesh(lab, &["job", "end", job, "--exit-code", code]).await?;
    let exit = exit?;
    let (out, err) = (exit.stdout.to_lossy(), exit.stderr.to_lossy());
    // Its own exit code for a wrong name, or for what the device refuses to begin with.
    ensure!(exit.code != Some(2), "{}", err.trim_end());
    Ok(format!(
        "job {job}: rank 0 on {} ran rdmesh-verbs {scenario}, exit code {}\n{out}{err}\
         Its snapshot leaves within five seconds. Then:\n  rdmesh diagnose {job}\n",
        host.name(),
        exit.code
            .map_or_else(|| "none".to_owned(), |code| code.to_string()),
    ))
}

async fn rdmesh(lab: &Lab, args: &[&str]) -> Result<()> {
    let output = lab.rdmesh(args).await?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "rdmesh: {}", said.trim_end());
    Ok(())
}

async fn answer_all(
    listener: &UnixListener,
    mut make: impl AsyncFnMut(String) -> Result<String>,
) -> Result<()> {
    loop {
        let (mut stream, _) = listener.accept().await.context("cannot listen")?;
        let answer = match question(&mut stream).await {
            Ok(scenario) => make(scenario).await,
            Err(error) => Err(error),
        };
        let text = match answer {
            Ok(text) => format!("{DONE}{text}"),
            Err(error) => format!("{REFUSED}{error:#}"),
        };
        // Who asked may be gone.
        let _ = stream.write_all(text.as_bytes()).await;
    }
}

/// The scenario that is asked for: the form of a name; rdmesh-verbs knows which there are.
async fn question(stream: &mut UnixStream) -> Result<String> {
    let mut line = String::new();
    let mut lines = BufReader::new(stream.take(MAX_QUESTION_BYTES));
    timeout(QUESTION_LIMIT, lines.read_line(&mut line))
        .await
        .context("nothing was asked")??;
    let name = line.strip_suffix('\n').unwrap_or_default();
    check_name(name)?;
    Ok(name.to_owned())
}

fn check_name(name: &str) -> Result<()> {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    ensure!(
        name.starts_with(|c: char| c.is_ascii_lowercase())
            && name.chars().all(allowed)
            && (name.len() as u64) < MAX_QUESTION_BYTES,
        "{name:?} is no scenario: write one such as reg-mr-access"
    );
    Ok(())
}

async fn ask(socket: &Path, scenario: &str) -> Result<String> {
    check_name(scenario)?;
    let mut stream = UnixStream::connect(socket).await.with_context(|| {
        format!(
            "no demo at {}: start `rdmesh-lab demo --keep` and take the directory from there",
            socket.display()
        )
    })?;
    stream.write_all(format!("{scenario}\n").as_bytes()).await?;
    let mut answer = String::new();
    timeout(ANSWER_LIMIT, stream.read_to_string(&mut answer))
        .await
        .with_context(|| format!("no answer from the demo in {ANSWER_LIMIT:?}"))??;
    match (answer.strip_prefix(DONE), answer.strip_prefix(REFUSED)) {
        (Some(text), _) => Ok(text.to_owned()),
        (None, Some(why)) => bail!("{why}"),
        (None, None) => bail!("the demo ended before it had answered"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_scenario_is_asked_for_and_an_odd_one_refused() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join(SOCKET);
        let listener = UnixListener::bind(&socket).unwrap();
        let asking = async {
            assert_eq!(ask(&socket, "rank").await.unwrap(), "ran rank\n");
            for odd in ["", "--help", "a b", "a\nb", &"x".repeat(100)] {
                let refused = ask(&socket, odd).await.unwrap_err().to_string();
                assert!(refused.contains("no scenario"), "{odd:?}: {refused}");
            }
            let mut stream = UnixStream::connect(&socket).await.unwrap();
            stream.write_all(b"--help\n").await.unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.unwrap();
            assert!(answer.starts_with(REFUSED), "{answer}");
            let refused = ask(&socket, "unknown").await.unwrap_err().to_string();
            assert_eq!(refused, "not known");
        };
        let mut made = Vec::new();
        let answering = answer_all(&listener, async |scenario| {
            made.push(scenario.clone());
            ensure!(scenario != "unknown", "not known");
            Ok(format!("ran {scenario}\n"))
        });
        tokio::select! {
            () = asking => {}
            ended = answering => panic!("{ended:?}"),
        }
        assert_eq!(made, ["rank", "unknown"]);
    }

    #[tokio::test]
    async fn who_finds_no_demo_is_told_to_start_one() {
        let refused = ask(Path::new("/nonexistent/fail"), "rank").await;
        let message = format!("{:#}", refused.unwrap_err());
        assert!(message.contains("demo --keep"), "{message}");
    }
}
