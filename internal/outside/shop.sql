create schema if not exists parcels;

-- One row for each order that has a parcel.
create table if not exists parcels.labels (
    order_id text primary key,
    label    text not null unique
);
