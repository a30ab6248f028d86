//! What `--help` says of where options come from.

use super::{ServiceConfig, default_path, layers};

/// Names the file, the environment's names and how the layers lie over one another, with
/// `codes` (the service's exit codes) after it; for clap's `after_help`.
#[must_use]
pub fn help<T: ServiceConfig>(codes: &str) -> String {
    let file = default_path(T::SERVICE);
    let prefix = layers::prefix(T::SERVICE);
    format!(
        "\
Options come from these, each over the one before it:
  {file}, which may be missing (--config names another)
  the environment: {prefix}SECTION__KEY, two underscores between
    the parts: {prefix}SERVER__LISTEN=127.0.0.1:7400;
    RDMESH_LOG for the log filter
  flags: --set section.key=value, and those above
--print-config prints all of them with the values in force.

With unix:/path, grpcurl needs -authority localhost: grpcurl -plaintext -unix
-authority localhost /path list

{codes}",
        file = file.display()
    )
}
