//! HTTP: health, metrics, status API, dashboard.
