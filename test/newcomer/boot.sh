#!/bin/bash
# Boots the Debian in $1 under the name $2; its changes go to $3. Runs in fresh
# namespaces, and becomes the machine's first process.
set -eu
base=$1 name=$2 changes=$3
root=$changes/root
mkdir -p "$root" "$changes/upper" "$changes/work"
mount -t overlay -o "lowerdir=$base,upperdir=$changes/upper,workdir=$changes/work" overlay "$root"
mount -t proc proc "$root/proc"
mount -t sysfs -o ro sysfs "$root/sys"
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
for device in null zero full random urandom tty; do
	cp -a "/dev/$device" "$root/dev/"
done
ln -s /proc/self/fd "$root/dev/fd"
ln -s pts/ptmx "$root/dev/ptmx"
mkdir "$root/dev/pts" "$root/dev/shm"
mount -t devpts -o newinstance,ptmxmode=666,mode=620,gid=5 devpts "$root/dev/pts"
mount -t tmpfs tmpfs "$root/dev/shm"
mount -t tmpfs -o mode=755 tmpfs "$root/run"
hostname "$name"
cd "$root"
mkdir -p .host
pivot_root . .host
umount -l /.host
exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin container=kgate-newcomer /lib/systemd/systemd --log-target=journal
