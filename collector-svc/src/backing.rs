//! What every service of the collector stands on.

use std::sync::Arc;

use rdmesh_store::Store;
use time::OffsetDateTime;
use tokio::sync::watch;
use tonic::Status;

use crate::site::Site;
use crate::status;
use crate::times::Now;

/// The store, which is handed out once its schema is there, the collector's clock, and the
/// site's files.
#[derive(Debug, Clone)]
pub struct Backing {
    store: Store,
    ready: watch::Receiver<bool>,
    now: Now,
    site: Arc<Site>,
}

impl Backing {
    /// `ready` says whether the schema of `store` is there; `now` reads the clock.
    #[must_use]
    pub fn new(store: Store, ready: watch::Receiver<bool>, now: fn() -> OffsetDateTime) -> Self {
        Self {
            store,
            ready,
            now,
            site: Arc::default(),
        }
    }

    /// The same with what a site says for itself.
    #[must_use]
    pub fn with_site(self, site: Arc<Site>) -> Self {
        Self { site, ..self }
    }

    /// What the site says for itself.
    pub(crate) fn site(&self) -> &Site {
        &self.site
    }

    /// The store; while its schema is not there, the status that says to try again.
    pub(crate) fn store(&self) -> Result<&Store, Status> {
        if *self.ready.borrow() {
            Ok(&self.store)
        } else {
            Err(status::not_ready())
        }
    }

    /// The collector's time.
    pub(crate) fn now(&self) -> OffsetDateTime {
        (self.now)()
    }

    /// The clock itself.
    pub(crate) fn clock(&self) -> Now {
        self.now
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rdmesh_store::StoreOptions;
    use std::time::Duration;
    use tonic::Code;

    #[tokio::test]
    async fn the_store_is_handed_out_once_its_schema_is_there() {
        let store = Store::new(&StoreOptions {
            url: "postgres:///nowhere?host=/nonexistent".into(),
            connections: 1,
            acquire_timeout: Duration::from_secs(1),
        })
        .unwrap();
        let (schema, ready) = watch::channel(false);
        let backing = Backing::new(store, ready, || OffsetDateTime::UNIX_EPOCH);
        assert_eq!(backing.store().unwrap_err().code(), Code::Unavailable);
        schema.send(true).unwrap();
        assert!(backing.store().is_ok());
        assert_eq!(backing.now(), OffsetDateTime::UNIX_EPOCH);
    }
}
