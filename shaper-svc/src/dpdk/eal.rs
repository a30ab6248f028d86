//! DPDK's environment: started once in a process, cleaned up when the last device
//! is gone.

use std::ffi::{CString, c_char};
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rdmesh_dpdk_sys as sys;

use super::error::{last_reason, reason};
use super::{DpdkError, Pool};
use crate::datapath::buffer_page_bytes;

/// How DPDK starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EalOptions {
    /// Huge pages, as on the card; else ordinary memory.
    pub huge_pages: bool,
    /// Memory that DPDK may take, MB.
    pub memory_mb: u64,
    /// PCI devices with their arguments (`0000:03:00.0,representor=vf[0-4]`). Others
    /// are left alone.
    pub pci_devices: Vec<String>,
    /// Two processes on a machine need different ones.
    pub file_prefix: String,
}

impl EalOptions {
    /// The arguments in DPDK's own words.
    #[must_use]
    pub fn arguments(&self) -> Vec<String> {
        let mut arguments = vec![
            "rdmesh-shaper".to_owned(),
            format!("-m{}", self.memory_mb),
            format!("--file-prefix={}", self.file_prefix),
            "--no-telemetry".to_owned(),
            // What it says at level notice on each start helps nobody.
            "--log-level=warning".to_owned(),
            "--iova-mode=va".to_owned(),
        ];
        // Neither leaves files behind that a killed service would have to clear away.
        let memory = if self.huge_pages {
            ["--in-memory"].as_slice()
        } else {
            &["--no-huge", "--no-shconf"]
        };
        arguments.extend(memory.iter().map(|&flag| flag.to_owned()));
        if self.pci_devices.is_empty() {
            arguments.push("--no-pci".to_owned());
        }
        for device in &self.pci_devices {
            arguments.extend(["-a".to_owned(), device.clone()]);
        }
        arguments
    }
}

/// DPDK's environment.
#[derive(Debug)]
pub struct Eal {
    /// Pages that buffers lie on, bytes.
    page_bytes: u64,
    /// Buffers may lie across the end of a page.
    packs_buffers: bool,
    /// Pools live as long as the environment: frames of theirs may be anywhere.
    pools: Mutex<Vec<Arc<Pool>>>,
}

/// Set for good by the first start.
static STARTED: AtomicBool = AtomicBool::new(false);

impl Eal {
    /// Starts the environment. DPDK pins the calling thread to a core for its own
    /// use; that is undone.
    ///
    /// # Errors
    /// [`DpdkError::StartedBefore`] on a second call in a process; [`DpdkError::Eal`]
    /// with DPDK's reason.
    pub fn start(options: &EalOptions) -> Result<Arc<Self>, DpdkError> {
        let arguments = options.arguments();
        let owned = arguments
            .iter()
            .map(|argument| CString::new(argument.as_str()))
            .collect::<Result<Vec<_>, _>>()
            .map_err(|e| DpdkError::zero_byte(&e))?;
        if STARTED.swap(true, Ordering::SeqCst) {
            return Err(DpdkError::StartedBefore);
        }
        // DPDK reorders the array and keeps pointers to the strings.
        let strings: Vec<*mut c_char> = owned.into_iter().map(CString::into_raw).collect();
        let mut argv = strings.clone();
        argv.push(std::ptr::null_mut());
        let argc = i32::try_from(strings.len()).unwrap_or(i32::MAX);

        let affinity = rustix::thread::sched_getaffinity(None);
        // SAFETY: argv has argc strings and ends in null; the strings are never freed.
        let code = unsafe { sys::rte_eal_init(argc, argv.as_mut_ptr()) };
        if let Ok(affinity) = affinity {
            // Failing to widen it again would only cost speed.
            let _ = rustix::thread::sched_setaffinity(None, &affinity);
        }
        if code < 0 {
            let arguments = arguments.join(" ");
            return Err(DpdkError::Eal {
                arguments,
                reason: last_reason(),
            });
        }
        Ok(Arc::new(Self {
            page_bytes: buffer_page_bytes(options.huge_pages, !options.pci_devices.is_empty()),
            packs_buffers: !options.huge_pages && options.pci_devices.is_empty(),
            pools: Mutex::new(Vec::new()),
        }))
    }

    /// Brings up a device that needs no bus (`net_af_packet0,iface=veth0`).
    ///
    /// # Errors
    /// [`DpdkError::Probe`] with DPDK's reason.
    pub fn probe(&self, device: &str) -> Result<(), DpdkError> {
        let arguments = CString::new(device).map_err(|e| DpdkError::zero_byte(&e))?;
        // SAFETY: the environment is up; the string is read during the call alone.
        let code = unsafe { sys::rte_dev_probe(arguments.as_ptr()) };
        if code < 0 {
            return Err(DpdkError::Probe {
                device: device.to_owned(),
                reason: reason(code),
            });
        }
        Ok(())
    }

    /// Whether a driver serves devices of this name. Touches none.
    #[must_use]
    pub fn has_driver(&self, device: &str) -> bool {
        let name = device.split(',').next().unwrap_or_default();
        let Ok(name) = CString::new(name) else {
            return false;
        };
        // SAFETY: the environment is up; the string is read during the call alone.
        unsafe { sys::rdmesh_has_driver(name.as_ptr()) != 0 }
    }

    /// Free memory of the environment's heap, bytes.
    #[must_use]
    pub fn heap_free_bytes(&self) -> u64 {
        // SAFETY: the environment is up.
        unsafe { sys::rdmesh_heap_free() }
    }

    pub(super) fn page_bytes(&self) -> u64 {
        self.page_bytes
    }

    pub(super) fn packs_buffers(&self) -> bool {
        self.packs_buffers
    }

    pub(super) fn keep(&self, pool: &Arc<Pool>) {
        self.pools
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(Arc::clone(pool));
    }
}

impl Drop for Eal {
    fn drop(&mut self) {
        self.pools
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clear();
        // SAFETY: every device and worker thread holds an Arc of this, so all are gone.
        unsafe { sys::rte_eal_cleanup() };
    }
}

/// Makes the thread that calls it known to DPDK, which gives it its own cache of each
/// pool: without one each burst would take the pool's lock. Stays on that thread.
#[derive(Debug)]
pub struct WorkerThread {
    _eal: Arc<Eal>,
    _stays: PhantomData<*const ()>,
}

impl WorkerThread {
    /// Registers the calling thread until the handle is dropped.
    ///
    /// # Errors
    /// [`DpdkError::Thread`] when DPDK has no number left for it.
    pub fn register(eal: &Arc<Eal>) -> Result<Self, DpdkError> {
        // SAFETY: the environment is up; the handle cannot leave this thread, so the
        // thread that registers is the one that unregisters.
        let code = unsafe { sys::rte_thread_register() };
        if code < 0 {
            return Err(DpdkError::Thread {
                reason: last_reason(),
            });
        }
        Ok(Self {
            _eal: Arc::clone(eal),
            _stays: PhantomData,
        })
    }
}

impl Drop for WorkerThread {
    fn drop(&mut self) {
        // SAFETY: this thread registered itself when the handle was made.
        unsafe { sys::rte_thread_unregister() };
    }
}
