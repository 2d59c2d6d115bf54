//! Asks the processor to fetch a cache line that will soon be read. A hint: it changes no result, and is nothing on
//! other processors than x86-64.
#![allow(unsafe_code)]

/// Starts loading the cache line that `place` begins in, into every cache level.
#[inline(always)]
pub(crate) fn prefetch<T>(place: &T) {
    #[cfg(target_arch = "x86_64")]
    {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: the instruction belongs to SSE, which every x86-64 processor has; it reads and writes nothing that a
        // program can observe and does not fault, and the address is that of a live reference anyway.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(place).cast()) }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = place;
}
