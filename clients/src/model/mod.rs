//! The collector's answers as checked types. Field names are those of the wire
//! contract; enum values are lower snake case; an empty text of the wire is
//! absent here.

pub mod advice;
pub mod agent;
pub mod arguments;
pub mod baseline;
pub mod failure;
pub mod incidents;
pub mod job;
pub mod log;
pub mod probe;
pub mod statistics;
pub mod timeline;
pub mod verdict;
pub mod wire;

use crate::error::ClientError;
use crate::moment::Moment;

/// What is shown for a value of the wire that was not told, and for one of a newer
/// contract: who reads it knows as little in both cases.
pub const UNKNOWN: &str = "unknown";

/// Declares an enum of the wire with its names. A value that this version does
/// not know stays apart from one that was not set; both are shown as [`UNKNOWN`].
macro_rules! wire_enum {
    ($(#[$doc:meta])* $name:ident from $wire:path { $($variant:ident => $text:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name {
            /// Not told.
            Unspecified,
            $(#[doc = concat!("`", $text, "`")] $variant,)+
            /// A value of a newer contract.
            Newer(i32),
        }

        impl $name {
            /// Every value that has a name, in the order of the wire.
            pub const ALL: &'static [$name] = &[$($name::$variant,)+];

            /// The name that JSON and text show.
            pub fn name(self) -> &'static str {
                match self {
                    $($name::$variant => $text,)+
                    $name::Unspecified | $name::Newer(_) => $crate::model::UNKNOWN,
                }
            }
        }

        impl From<i32> for $name {
            fn from(value: i32) -> $name {
                match <$wire>::try_from(value) {
                    Ok(<$wire>::Unspecified) => $name::Unspecified,
                    $(Ok(<$wire>::$variant) => $name::$variant,)+
                    Err(_) => $name::Newer(value),
                }
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.serialize_str(self.name())
            }
        }
    };
}
pub(crate) use wire_enum;

wire_enum! {
    /// Where in the kernel a function stands.
    Layer from rdmesh_proto::common::v1::Layer {
        Memory => "memory",
        Firmware => "firmware",
        Driver => "driver",
        Core => "core",
        Uverbs => "uverbs",
    }
}

wire_enum! {
    /// What the application asked for.
    Verb from rdmesh_proto::common::v1::Verb {
        AllocPd => "alloc_pd",
        RegMr => "reg_mr",
        RegDmabufMr => "reg_dmabuf_mr",
        CreateCq => "create_cq",
        CreateQp => "create_qp",
        ModifyQp => "modify_qp",
        CreateAh => "create_ah",
        DevxObjCreate => "devx_obj_create",
        DevxObjModify => "devx_obj_modify",
        DevxUmemReg => "devx_umem_reg",
        FirmwareCommand => "firmware_command",
        AsyncEvent => "async_event",
    }
}

/// The field, or the error that says it is missing.
pub(crate) fn present<T>(field: &'static str, value: Option<T>) -> Result<T, ClientError> {
    value.ok_or_else(|| ClientError::BadAnswer {
        field,
        reason: "it is missing".to_owned(),
    })
}

/// A time that may be absent.
pub(crate) fn moment(
    field: &'static str,
    stamp: Option<prost_types::Timestamp>,
) -> Result<Option<Moment>, ClientError> {
    stamp
        .map(Moment::try_from)
        .transpose()
        .map_err(|reason| ClientError::BadAnswer { field, reason })
}

/// A time of a row; what is no time leaves a mark on the row, so that the other
/// rows can be shown.
pub(crate) fn moment_or_mark(
    marks: &mut Vec<String>,
    field: &'static str,
    stamp: Option<prost_types::Timestamp>,
) -> Option<Moment> {
    match stamp.map(Moment::try_from).transpose() {
        Ok(moment) => moment,
        Err(reason) => {
            marks.push(format!("{field}: {reason}"));
            None
        }
    }
}

/// An empty text of the wire says nothing.
pub(crate) fn text(value: String) -> Option<String> {
    (!value.is_empty()).then_some(value)
}
