//! systemd's unit files as text.

use anyhow::{Context, Result};

use crate::text;

/// The values of a key in a service's unit, in their order. A key may be given repeatedly.
///
/// # Errors
/// There is no such unit.
pub fn values(service: &str, key: &str) -> Result<Vec<String>> {
    let text = text(&format!("packaging/systemd/rdmesh-{service}.service"))?;
    Ok(text
        .lines()
        .filter_map(|line| line.strip_prefix(key)?.strip_prefix('='))
        .map(|value| value.trim().to_owned())
        .collect())
}

/// The words of a key's only value.
///
/// # Errors
/// There is no such unit, or it lacks the key.
pub fn words(service: &str, key: &str) -> Result<Vec<String>> {
    let values = values(service, key)?;
    let value = values
        .first()
        .with_context(|| format!("rdmesh-{service}.service has no {key}="))?;
    Ok(value.split_whitespace().map(str::to_owned).collect())
}
