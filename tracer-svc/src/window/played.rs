//! A kernel that a test plays: functions of reg_mr and create_cq, and the moments that
//! the test makes.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use super::{Field, Moments};
use crate::baseline::{Moment, Watched, What};
use crate::btf::ReturnKind;
use crate::loader::{LoadError, Place, Reach, Way};

/// `uname -r` of it.
pub(crate) const RELEASE: &str = "6.1.0";

const ENTRY: u32 = 0;
const PIN: u32 = 2;

/// Clones are the same kernel.
#[derive(Clone, Debug, Default)]
pub(crate) struct Played {
    moments: Arc<Mutex<VecDeque<Moment>>>,
    attached: Arc<AtomicU32>,
    refuses: Arc<AtomicBool>,
    storms: Arc<AtomicBool>,
}

impl Played {
    /// A call of reg_mr: `pin` returns this errno, and so does the call; 0 is none.
    pub(crate) fn call(&self, pinned: u32, returned: u32) {
        let value = |errno: u32| What::Returns(u64::from(errno).wrapping_neg());
        let steps = [
            (ENTRY, What::Enters),
            (PIN, What::Enters),
            (PIN, value(pinned)),
            (ENTRY, value(returned)),
        ];
        let mut moments = self.moments.lock().unwrap();
        for (function, what) in steps {
            moments.push_back(Moment {
                boot_ns: 0,
                tid: 7,
                tgid: 5,
                function,
                what,
            });
        }
    }

    /// Windows whose functions are attached now.
    pub(crate) fn attached(&self) -> u32 {
        self.attached.load(Ordering::SeqCst)
    }

    /// The kernel takes no functions.
    pub(crate) fn refuse(&self) {
        self.refuses.store(true, Ordering::SeqCst);
    }

    /// Failing calls come faster than they are read.
    pub(crate) fn storm(&self) {
        self.storms.store(true, Ordering::SeqCst);
    }
}

struct Attached(Played);

impl Moments for Attached {
    fn next(&mut self) -> Option<Moment> {
        if self.0.storms.load(Ordering::SeqCst) && self.0.moments.lock().unwrap().is_empty() {
            self.0.call(14, 14);
        }
        self.0.moments.lock().unwrap().pop_front()
    }

    fn lost(&self) -> Result<u64, LoadError> {
        Ok(3)
    }

    fn functions(&self) -> usize {
        3
    }

    fn way(&self) -> Way {
        Way::OneByOne
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        self.0.attached.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Field for Played {
    fn release(&self) -> String {
        RELEASE.to_owned()
    }

    fn reach(&self, verbs: &[String], driver: Option<&str>) -> Result<Reach, LoadError> {
        let watched = |(name, verb): (&str, &str)| Watched {
            name: name.to_owned(),
            returns: ReturnKind::Int,
            entry_of: verbs.iter().filter(|v| *v == verb).cloned().collect(),
        };
        let watched = [
            ("ib_uverbs_reg_mr", "reg_mr"),
            ("ib_uverbs_create_cq", "create_cq"),
            ("pin", ""),
            ("far", ""),
        ]
        .map(watched);
        Ok(Reach {
            driver: driver.unwrap_or("rdma_rxe").to_owned(),
            places: watched
                .iter()
                .map(|w| Place {
                    address: 1,
                    is_entry: !w.entry_of.is_empty(),
                })
                .collect(),
            watched: watched.to_vec(),
            left_out: 2,
        })
    }

    fn attach(
        &self,
        _reach: &Reach,
        go_on: &dyn Fn() -> bool,
    ) -> Result<Box<dyn Moments>, LoadError> {
        if self.refuses.load(Ordering::SeqCst) || !go_on() {
            return Err(LoadError::Baseline("refused".to_owned()));
        }
        self.attached.fetch_add(1, Ordering::SeqCst);
        Ok(Box::new(Attached(self.clone())))
    }
}
