# Adds Slurm and MUNGE, as they are installed on this machine, the scripts of `deploy/`, and the users slurm and alice to the
# guest. The scripts need the real setsid, and a shell that does not prefer the applets of busybox.
repository=$(dirname "$(dirname "$here")")
for program in /usr/sbin/{slurmctld,slurmd,slurmstepd,munged} /usr/bin/{sbatch,srun,scontrol,squeue,sstat,setsid}; do
    add "$program"
done
add /usr/bin/dash /bin/sh
for plugin in /usr/lib/x86_64-linux-gnu/slurm-wlm/*.so; do
    add "$plugin"
done
add "$(ldconfig -p | sed -n 's/.*libmunge.so.2 .*x86-64.*=> //p' | head -1)"
mkdir -p root/etc/{slurm,polymeter,munge}
cp "$test"/{slurm,cgroup}.conf root/etc/slurm/
cp "$repository"/deploy/slurm/* root/etc/slurm/
cp "$test"/{solve,requeued}.sh root/
head -c 128 /dev/urandom >root/etc/munge/munge.key
chmod 400 root/etc/munge/munge.key
printf '127.0.0.1 localhost guest\n' >root/etc/hosts
printf '%s\n' 'slurm:x:64030:64030:slurm:/tmp:/bin/sh' 'alice:x:1000:1000:alice:/tmp:/bin/sh' >>root/etc/passwd
printf '%s\n' 'slurm:x:64030:' 'alice:x:1000:' >>root/etc/group
