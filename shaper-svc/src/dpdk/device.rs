//! A network device: found by name, set up, counted, stopped.

use std::ffi::CString;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rdmesh_dpdk_sys as sys;

use super::error::reason;
use super::{DpdkError, DpdkPort, Eal, Pool};

/// How a device is set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceOptions {
    /// Receive ring, frames. The driver may bring it into its own range.
    pub rx_descriptors: u16,
    /// Send ring, frames. The driver may bring it into its own range.
    pub tx_descriptors: u16,
    /// Largest payload of a frame, bytes.
    pub mtu: u16,
    /// Tell when less than so many percent of the receive ring are free; 0: do not.
    pub rx_low_percent: u8,
}

/// A started device. Dropping the last handle stops and closes it.
#[derive(Debug)]
pub struct Device {
    id: u16,
    name: String,
    options: DeviceOptions,
    pool: Arc<Pool>,
    port_taken: AtomicBool,
    // Last: the environment outlives the device.
    _eal: Arc<Eal>,
}

impl Device {
    /// Looks a port up by name and starts it; received frames go into `pool`.
    ///
    /// # Errors
    /// [`DpdkError::NoPort`] when no device has that name, [`DpdkError::Port`] with
    /// the step that failed.
    pub fn start(
        eal: &Arc<Eal>,
        name: &str,
        options: DeviceOptions,
        pool: &Arc<Pool>,
    ) -> Result<Arc<Self>, DpdkError> {
        let id = find(name)?;
        let mut device = Self {
            id,
            name: name.to_owned(),
            options,
            pool: Arc::clone(pool),
            port_taken: AtomicBool::new(false),
            _eal: Arc::clone(eal),
        };
        device.set_up()?;
        Ok(Arc::new(device))
    }

    fn set_up(&mut self) -> Result<(), DpdkError> {
        // SAFETY: `id` is a valid port.
        let code = unsafe { sys::rdmesh_port_configure(self.id, self.options.mtu) };
        self.check(
            "configuring it (does the device take the `mtu` of its wires?)",
            code,
        )?;
        let DeviceOptions {
            rx_descriptors: mut rx,
            tx_descriptors: mut tx,
            ..
        } = self.options;
        let (to_rx, to_tx) = (&raw mut rx, &raw mut tx);
        // SAFETY: `id` is a configured port; both numbers are locals.
        let code = unsafe { sys::rte_eth_dev_adjust_nb_rx_tx_desc(self.id, to_rx, to_tx) };
        self.check("sizing its rings", code)?;
        (self.options.rx_descriptors, self.options.tx_descriptors) = (rx, tx);
        // SAFETY: `id` is a valid port.
        let socket = u32::try_from(unsafe { sys::rte_eth_dev_socket_id(self.id) }).unwrap_or(0);
        let (default, pool) = (std::ptr::null(), self.pool.raw());
        // SAFETY: the port is configured with one queue; the pool outlives the device;
        // null takes the driver's defaults.
        let code = unsafe { sys::rte_eth_rx_queue_setup(self.id, 0, rx, socket, default, pool) };
        self.check(
            "setting up its receive ring (are the buffers large enough for the MTU?)",
            code,
        )?;
        // SAFETY: as above.
        let code = unsafe { sys::rte_eth_tx_queue_setup(self.id, 0, tx, socket, default) };
        self.check("setting up its send ring", code)?;
        // SAFETY: `id` is a configured port with its queues set up.
        let code = unsafe { sys::rte_eth_dev_start(self.id) };
        self.check("starting it", code)?;
        // SAFETY: `id` is a started port.
        let code = unsafe { sys::rdmesh_port_watch(self.id, self.options.rx_low_percent) };
        self.check(
            "watching its receive ring (leave `dpdk.rx_low_percent` out where the device cannot)",
            code,
        )?;
        // A wire carries frames to any address. Devices that need no mode refuse it.
        // SAFETY: `id` is a started port.
        unsafe { sys::rte_eth_promiscuous_enable(self.id) };
        Ok(())
    }

    /// The port's two directions, for the thread that calls.
    ///
    /// # Errors
    /// [`DpdkError::PortInUse`] while the port is out already: a queue has one user.
    pub fn port(self: &Arc<Self>) -> Result<DpdkPort, DpdkError> {
        if self.port_taken.swap(true, Ordering::AcqRel) {
            return Err(DpdkError::PortInUse {
                name: self.name.clone(),
            });
        }
        Ok(DpdkPort::new(Arc::clone(self)))
    }

    /// The device's counters; not for the poll loop (some drivers ask the kernel).
    ///
    /// # Errors
    /// [`DpdkError::Port`] when the device has gone.
    pub fn counters(&self) -> Result<sys::PortCounters, DpdkError> {
        let mut counters = sys::PortCounters::default();
        // SAFETY: `id` is a valid port; the struct is a local of the shim's layout.
        let code = unsafe { sys::rdmesh_port_counters(self.id, &raw mut counters) };
        self.check("reading its counters", code)?;
        Ok(counters)
    }

    /// Frames that the kernel dropped in front of a device that sits on its interface of
    /// this index, since the last call: its ring was full. Not for the poll loop.
    #[must_use]
    pub fn kernel_drops(interface: u32) -> u64 {
        // SAFETY: asks the kernel about descriptors of this process, for any number.
        unsafe { sys::rdmesh_packet_drops(interface) }
    }

    /// Whether the device said that it goes away.
    #[must_use]
    pub fn is_removed(&self) -> bool {
        // SAFETY: reads a word of the shim's own, for any number.
        unsafe { sys::rdmesh_port_removed(self.id) != 0 }
    }

    /// Whether the device says that it has no link. Not for the poll loop.
    #[must_use]
    pub fn link_is_down(&self) -> bool {
        // SAFETY: `id` is a valid port; the struct is the shim's own.
        unsafe { sys::rdmesh_port_link_is_down(self.id) != 0 }
    }

    /// Name as configured.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it was set up with, as the driver adjusted it.
    #[must_use]
    pub fn options(&self) -> DeviceOptions {
        self.options
    }

    /// The pool that it receives into.
    #[must_use]
    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    pub(super) fn id(&self) -> u16 {
        self.id
    }

    pub(super) fn port_returned(&self) {
        self.port_taken.store(false, Ordering::Release);
    }

    fn check(&self, step: &'static str, code: i32) -> Result<(), DpdkError> {
        if code >= 0 {
            return Ok(());
        }
        Err(DpdkError::Port {
            name: self.name.clone(),
            step,
            reason: reason(code),
        })
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: `id` is a valid port whose queues nobody uses: a port in use holds a
        // count of this.
        unsafe { sys::rte_eth_dev_stop(self.id) };
        // SAFETY: as above.
        unsafe { sys::rte_eth_dev_close(self.id) };
    }
}

fn find(name: &str) -> Result<u16, DpdkError> {
    let c_name = CString::new(name).map_err(|e| DpdkError::zero_byte(&e))?;
    let mut id = 0;
    // SAFETY: the string and the number live through the call.
    let code = unsafe { sys::rte_eth_dev_get_port_by_name(c_name.as_ptr(), &raw mut id) };
    if code == 0 {
        Ok(id)
    } else {
        Err(DpdkError::NoPort {
            name: name.to_owned(),
        })
    }
}
