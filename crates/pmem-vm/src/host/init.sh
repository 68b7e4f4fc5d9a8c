#!/bin/busybox sh
# The guest's first process: mounts, modules, DAX; then the program takes over.
/bin/busybox mkdir -p /proc /sys /dev /tmp /dax
/bin/busybox --install -s /bin
export PATH=/bin:/programs
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev 2>/dev/null
fail() { echo "wrong $*" >/dev/ttyS1; sleep 3600; }

while read -r module; do
    insmod "/modules/$module" || fail "the module $module does not load"
done </modules/order
ip link set lo up || fail "no loopback network"

# A fresh NVDIMM is a raw namespace without DAX. What makes it fsdax is written into it once.
nd=/sys/bus/nd/devices
if [ "$(cat /sys/block/pmem0/queue/dax)" != 1 ]; then
    echo namespace0.0 >$nd/namespace0.0/driver/unbind
    echo 2097152 >$nd/pfn0.0/align
    cat /proc/sys/kernel/random/uuid >$nd/pfn0.0/uuid
    echo ram >$nd/pfn0.0/mode
    echo namespace0.0 >$nd/pfn0.0/namespace
    echo pfn0.0 >/sys/bus/nd/drivers/nd_pmem/bind
fi
mount -t ext4 -o dax=always /dev/pmem0 /dax || fail "ext4 does not mount with -o dax"
grep -q '^/dev/pmem0 /dax ext4 .*dax=always' /proc/mounts || fail "the mount is not DAX"
# Every word of PARAMETERS is an argument.
# shellcheck disable=SC2086
exec /programs/pmem-vm guest $PARAMETERS
