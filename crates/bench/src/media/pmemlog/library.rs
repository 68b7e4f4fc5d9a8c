//! The used functions of `libpmemlog`, loaded at run time. [libpmemlog(7), 1.12]
#![allow(unsafe_code)]

use std::ffi::{CString, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::ptr::NonNull;
use std::rc::Rc;

const FILE: &str = "libpmemlog.so.1";

type Create = unsafe extern "C" fn(*const c_char, usize, Mode) -> *mut c_void;
type AppendFunction = unsafe extern "C" fn(*mut c_void, *const c_void, usize) -> c_int;
type OfPool = unsafe extern "C" fn(*mut c_void);
type Tell = unsafe extern "C" fn(*mut c_void) -> i64;

/// `mode_t` on Linux.
type Mode = u32;

/// The library, loaded.
pub struct Library {
    create: Create,
    append: AppendFunction,
    rewind: OfPool,
    close: OfPool,
    tell: Tell,
    // Keeps the functions where they are.
    _library: libloading::Library,
}

impl Library {
    /// Loads the library, or explains why it cannot.
    pub fn load() -> Result<Library, String> {
        let missing = |error: libloading::Error| {
            format!("libpmemlog is not installed (Debian: apt install libpmemlog1): {error}")
        };
        // SAFETY: the library's initialisers set up its own state only; they may run at any time.
        let library = unsafe { libloading::Library::new(FILE) }.map_err(missing)?;
        // SAFETY: the names have these types in libpmemlog.h of version 1. The functions are used
        // only while `library`, which moves into the same struct, is loaded.
        unsafe {
            Ok(Library {
                create: *library.get::<Create>(b"pmemlog_create\0").map_err(missing)?,
                append: *library.get::<AppendFunction>(b"pmemlog_append\0").map_err(missing)?,
                rewind: *library.get::<OfPool>(b"pmemlog_rewind\0").map_err(missing)?,
                close: *library.get::<OfPool>(b"pmemlog_close\0").map_err(missing)?,
                tell: *library.get::<Tell>(b"pmemlog_tell\0").map_err(missing)?,
                _library: library,
            })
        }
    }
}

/// An open pool of one log.
pub struct Pool {
    library: Rc<Library>,
    pool: NonNull<c_void>,
}

impl Pool {
    /// Makes a file of so many bytes and a log in it.
    pub fn create(library: Rc<Library>, path: &Path, len: u64) -> Result<Pool, String> {
        let name = CString::new(path.as_os_str().as_bytes())
            .map_err(|_| format!("{}: a name with a zero byte", path.display()))?;
        let len =
            usize::try_from(len).map_err(|_| "a pool beyond the address space".to_string())?;
        // SAFETY: the name ends with a zero byte and lives until the call returns.
        let pool = unsafe { (library.create)(name.as_ptr(), len, 0o600) };
        match NonNull::new(pool) {
            Some(pool) => Ok(Pool { library, pool }),
            None => {
                let error = std::io::Error::last_os_error();
                Err(format!("libpmemlog makes no pool at {}: {error}", path.display()))
            }
        }
    }

    /// False where the log is full.
    #[inline]
    pub fn append(&self, bytes: &[u8]) -> bool {
        // SAFETY: the pool is open, and the bytes are read only until the call returns.
        unsafe {
            (self.library.append)(self.pool.as_ptr(), bytes.as_ptr().cast(), bytes.len()) == 0
        }
    }

    /// Empties the log.
    pub fn rewind(&self) {
        // SAFETY: the pool is open.
        unsafe { (self.library.rewind)(self.pool.as_ptr()) }
    }

    /// Bytes in the log.
    pub fn len(&self) -> u64 {
        // SAFETY: the pool is open.
        let at = unsafe { (self.library.tell)(self.pool.as_ptr()) };
        u64::try_from(at).unwrap_or(0)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // SAFETY: the pool is open and has no use after this.
        unsafe { (self.library.close)(self.pool.as_ptr()) }
    }
}
