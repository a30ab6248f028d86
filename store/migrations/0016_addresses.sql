-- Whose GID a failing connection asked for: the addresses of every host's ports, as its newest
-- inventory tells them.

CREATE TABLE rdmesh_store.addresses (
    host text NOT NULL,
    gid bytea NOT NULL,
    device text NOT NULL,
    port bigint NOT NULL,
    -- By the host's clock: from when on the inventory holds that told it.
    seen_at timestamptz NOT NULL,
    PRIMARY KEY (host, gid, device, port)
);
CREATE INDEX addresses_by_gid ON rdmesh_store.addresses (gid);

CREATE VIEW rdmesh.addresses AS
SELECT a.host AS host,
       a.device AS device,
       a.port AS port,
       -- As an IPv6 address, the form in which records tell a destination.
       rtrim(regexp_replace(encode(a.gid, 'hex'), '(....)', '\1:', 'g'), ':')::inet AS gid,
       a.seen_at AS seen_at
FROM rdmesh_store.addresses a;

COMMENT ON VIEW rdmesh.addresses IS 'GIDs of the RDMA ports of every host, by its newest inventory: whose address a connection asked for.';
COMMENT ON COLUMN rdmesh.addresses.host IS 'The host.';
COMMENT ON COLUMN rdmesh.addresses.device IS 'RDMA device.';
COMMENT ON COLUMN rdmesh.addresses.port IS 'Its port.';
COMMENT ON COLUMN rdmesh.addresses.gid IS 'The GID, as an IPv6 address.';
COMMENT ON COLUMN rdmesh.addresses.seen_at IS 'From when on the inventory that told it holds, by the host''s clock.';
