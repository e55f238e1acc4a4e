//! The allocator.

/// Gives memory that is free back to the kernel, for a process that lives long and has had much to do for a moment
/// (malloc_trim(3)). Takes milliseconds for 100 MiB. Other allocators than glibc's do as they like.
pub fn give_back_free_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it takes no pointer, and the allocator has locks of its own.
    unsafe {
        libc::malloc_trim(0);
    }
}
