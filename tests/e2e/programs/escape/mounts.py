"""Attempts to get out by mounts: python3 mounts.py ATTEMPT ARGUMENT..."""

import errno
import os
import stat

from calls import LIBC, NEWCGROUP, NEWNS, NEWUSER, attempt, check, enter_namespaces, run, syscall, write

RDONLY, REMOUNT, BIND, MOVE, REC = 1, 0x20, 0x1000, 0x2000, 0x4000
# nosuid, nodev, noexec: a remount may not leave out the ones that are locked.
KEPT = 2 | 4 | 8
DETACH = 2
OPEN_TREE, CLONE = 428, 1


def mount(source, target, kind=b"none", flags=0, options=None):
    check(LIBC.mount(os.fsencode(source), os.fsencode(target), kind, flags, options))


def uncover(path):
    """Takes a mask off the folder, as the root of a user namespace of its own, in each way that there might be. The mask is
    an empty folder; what says `got` found something in it.
    """
    enter_namespaces(NEWUSER | NEWNS, as_root=True)
    take_off(path)
    try_to_uncover(path)


def uncover_own(path):
    """The same, but the mask is made here, by the same user: the ways are ways."""
    enter_namespaces(NEWUSER | NEWNS, as_root=True)
    mount("tmpfs", path, b"tmpfs", RDONLY | KEPT)
    try_to_uncover(path)


def take_off_own(path):
    enter_namespaces(NEWUSER | NEWNS, as_root=True)
    mount("tmpfs", path, b"tmpfs", RDONLY | KEPT)
    take_off(path)


def take_off(path):
    attempt("taken off", lambda: (check(LIBC.umount2(os.fsencode(path), DETACH)), look(path)))


def try_to_uncover(path):
    above, name = os.path.split(path)
    place = "/mnt"
    lower = ("lowerdir=%s:/usr/share" % above).encode()
    below = "bound without what is mounted below"
    attempt("made writable", lambda: make_writable(path))
    attempt(below, lambda: (mount(above, place, flags=BIND), look_and_leave(place, name)))
    attempt("cloned", lambda: clone(above, name))
    attempt("laid over", lambda: (mount("overlay", place, b"overlay", options=lower), look_and_leave(place, name)))
    attempt("moved", lambda: (mount(path, place, flags=MOVE), look(path), mount(place, path, flags=MOVE)))
    handle = os.open(above, os.O_PATH | os.O_DIRECTORY)
    attempt("left behind", lambda: leave_behind(handle, name))


def leave_behind(handle, name):
    """Moves to another root and gives the old one up, with all that is mounted in it; but a folder of it is still open."""
    mount("tmpfs", "/mnt", b"tmpfs")
    os.mkdir("/mnt/old")
    syscall("pivot_root", b"/mnt", b"/mnt/old")
    os.chdir("/")
    check(LIBC.umount2(b"/old", DETACH))
    if not os.listdir(os.open(name, os.O_RDONLY, dir_fd=handle)):
        raise OSError(errno.ENOENT, "nothing")


def make_writable(folder):
    """Of both the mount and the file system."""
    for flags in (REMOUNT | BIND | KEPT, REMOUNT | KEPT):
        LIBC.mount(b"none", os.fsencode(folder), None, flags, None)
    write(folder + "/written", "")
    os.unlink(folder + "/written")


def look(folder):
    """Whether there is something in it."""
    if not os.listdir(folder):
        raise OSError(errno.ENOENT, "nothing")


def look_and_leave(place, name):
    try:
        look(place + "/" + name)
    finally:
        LIBC.umount2(os.fsencode(place), DETACH)


def clone(above, name):
    tree = check(LIBC.syscall(OPEN_TREE, -100, os.fsencode(above), CLONE))
    try:
        look("/proc/self/fd/%d/%s" % (tree, name))
    finally:
        os.close(tree)


def write_again(path):
    """Makes a mount that is read-only writable again, as the root of a user namespace of its own."""
    enter_namespaces(NEWUSER | NEWNS, as_root=True)
    try_to_write_again(path)


def write_own_again(path):
    """The same, but made read-only here."""
    enter_namespaces(NEWUSER | NEWNS, as_root=True)
    mount(path, path, flags=BIND | REC)
    mount("none", path, flags=REMOUNT | BIND | RDONLY | KEPT)
    try_to_write_again(path)


def try_to_write_again(path):
    attempt("remounted", lambda: mount("none", path, flags=REMOUNT | BIND | KEPT))
    attempt("bound", lambda: (mount(path, "/mnt", flags=BIND | REC), mount("none", "/mnt", flags=REMOUNT | BIND | KEPT)))


def in_group(folder, *command):
    """Executes the command in a control group."""
    with open(folder + "/cgroup.procs", "w") as file:
        file.write("0")
    os.execvp(command[0], command)


def groups(folder):
    """Thaws the processes of the control group that the run is in, which is no harm: who may thaw may freeze and kill. Where
    it is mounted, and then by a mount afresh, in a cgroup namespace of its own.
    """
    attempt("as it is mounted", lambda: thaw(folder))
    attempt("a namespace", lambda: enter_namespaces(NEWUSER | NEWNS | NEWCGROUP, as_root=True))
    attempt("mounted afresh", lambda: (mount("none", "/mnt", b"cgroup2"), thaw("/mnt")))


def thaw(folder):
    write(folder + "/cgroup.freeze", "0")


def release_agent(folder, options):
    """Names the program that the kernel starts, outside, once a control group of version 1 is empty."""
    attempt("as it is mounted", lambda: os.close(os.open(folder + "/release_agent", os.O_WRONLY)))
    attempt("a mount", lambda: mount("none", "/mnt", b"cgroup", options=options.encode()))
    attempt("mounted afresh", lambda: os.close(os.open("/mnt/release_agent", os.O_WRONLY)))


def devices(*paths):
    """Opens devices, and makes one."""
    for path in paths:
        attempt(path, lambda: os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK)))
    attempt("a device", lambda: os.mknod("device", stat.S_IFCHR | 0o600, os.makedev(1, 11)))


def disk(device):
    """Mounts the file system on a device; as who one is, and as the root of a user namespace of one's own."""
    attempt("a disk", lambda: mount_and_leave(device))
    enter_namespaces(NEWUSER | NEWNS, as_root=True)
    attempt("a disk from below", lambda: mount_and_leave(device))


def mount_and_leave(device):
    mount(device, "/mnt", b"ext4", RDONLY)
    check(LIBC.umount2(b"/mnt", DETACH))


def root():
    """Walks out of a root folder that it sets itself, the old trick of those who may call chroot(2)."""
    os.chroot("/mnt")
    for _ in range(64):
        os.chdir("..")
    os.chroot(".")
    attempt("processes of the host's", lambda: outside())


def outside():
    if len([name for name in os.listdir("/proc") if name.isdigit()]) > 3:
        return
    raise OSError(errno.ENOENT, "nothing")


if __name__ == "__main__":
    run(globals())
