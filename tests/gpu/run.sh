#!/bin/bash
# run.sh - everything about GPUs on a machine that has one: builds libdtrain in build/gpu, runs the
# tests and measures. The last thing it prints is one table; the exit status is 0 when all went well.
set -u

root=$(cd "$(dirname "$0")/../.." && pwd)
build=$root/build/gpu
bin=$build/bin
table=$build/table.txt
failures=0
data=${FASHION_MNIST:-/usr/share/datasets/fashion-mnist}
jobs=$(nproc)

usage()
{
    cat <<'END'
usage: tests/gpu/run.sh [--help]

Needs a GPU, its driver, nvcc, NCCL, an MPI, CMocka and, for training, cuBLAS and Fashion-MNIST
(FASHION_MNIST names its folder). On a machine without a GPU it says so and exits with 77.
END
}

case ${1:-} in
'') ;;
--help | -h)
    usage
    exit 0
    ;;
*)
    usage >&2
    exit 2
    ;;
esac

if ! nvidia-smi -L >/dev/null 2>&1; then
    echo "skipped: no GPU here (nvidia-smi finds none)"
    exit 77
fi
gpus=$(nvidia-smi -L | grep -c '^GPU')

row()
{
    printf '%-44s %s\n' "$1" "$2" | tee -a "$table"
}

# check NAME LIMIT COMMAND ... - runs a test; its output is shown when it fails.
check()
{
    local name=$1 limit=$2 log=$build/${1//[^a-z0-9]/_}.log start=$SECONDS
    shift 2
    if timeout "$limit" "$@" >"$log" 2>&1; then
        row "$name" "passed, $((SECONDS - start)) s"
    else
        row "$name" "FAILED: $log"
        tail -n 20 "$log"
        failures=$((failures + 1))
    fi
}

# measure NAME PATTERN LIMIT COMMAND ... - runs a program and puts its lines that match into the table.
measure()
{
    local name=$1 pattern=$2 limit=$3 log=$build/${1//[^a-z0-9]/_}.log
    shift 3
    if ! timeout "$limit" "$@" >"$log" 2>&1; then
        row "$name" "FAILED: $log"
        tail -n 20 "$log"
        failures=$((failures + 1))
        return
    fi
    grep -E "$pattern" "$log" | while read -r line; do row "$name" "$line"; done
}

# NCCL takes ranks on one GPU for several machines, and so lets them use it.
shared='NCCL_HOSTID=rank${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-0}} exec "$0" "$@"'

set -e
cmake -S "$root" -B "$build" -DCMAKE_BUILD_TYPE=Release -DDTRAIN_CUDA=ON -DDTRAIN_FAULT_POINTS=ON \
    >"$build.log" 2>&1 || { tail -n 20 "$build.log"; exit 1; }
cmake --build "$build" --parallel "$jobs" >>"$build.log" 2>&1 || { tail -n 20 "$build.log"; exit 1; }
set +e
mpiexec=$(sed -n 's/^MPIEXEC_EXECUTABLE:[^=]*=//p' "$build/CMakeCache.txt")
case $("$mpiexec" --version 2>&1) in
*'Open MPI'* | *OpenRTE* | *PRRTE*) flavor=openmpi ;;
*HYDRA* | *Intel*) flavor=hydra ;;
*) flavor=other ;;
esac
ranks=("$root/tests/support/mpirun.sh" "$flavor" "$mpiexec") # then their number and a program
: >"$table"

row GPU "$(nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader | head -n 1), $gpus of them"
row versions "$(nvcc --version | sed -n 's/.*release \([0-9.]*\).*/CUDA \1/p'), $(uname -r), commit $(git -C "$root" rev-parse --short HEAD 2>/dev/null)"

check 'unit tests' 600 ctest --test-dir "$build" -L unit -L cuda --output-on-failure
operations=$build/tests/gpu/operations
check 'operations, one rank' 300 "${ranks[@]}" 1 "$operations"
check 'operations, staged, two ranks on a GPU' 300 env DTRAIN_GPU=staged CUDA_VISIBLE_DEVICES=0 \
    "${ranks[@]}" 2 "$operations"
check 'operations, NCCL, two ranks on a GPU' 600 env DTRAIN_GPU=shared CUDA_VISIBLE_DEVICES=0 \
    NCCL_NET=Socket NCCL_IB_DISABLE=1 NCCL_MNNVL_ENABLE=0 NCCL_MAX_CTAS=4 \
    NCCL_MULTI_RANK_GPU_ENABLE=1 "${ranks[@]}" 2 bash -c "$shared" "$operations"
if [ "$gpus" -ge 2 ]; then
    check "operations, $gpus ranks" 600 "${ranks[@]}" "$gpus" "$operations"
fi
for tool in memcheck racecheck; do
    if command -v compute-sanitizer >/dev/null; then
        check "compute-sanitizer, $tool" 1800 compute-sanitizer --tool "$tool" --error-exitcode 1 \
            "$operations"
    else
        row "compute-sanitizer, $tool" 'skipped: it is not installed'
    fi
done

measure 'pack and unpack' 'GB/s' 300 "$build/tests/gpu/bench_move"
measure 'beside a bare ncclAllReduce, 1 rank' 'bytes' 600 "${ranks[@]}" 1 "$build/tests/gpu/bench_overhead"
if [ "$gpus" -ge 2 ]; then
    measure "beside a bare ncclAllReduce, $gpus ranks" 'bytes' 600 "${ranks[@]}" "$gpus" \
        "$build/tests/gpu/bench_overhead"
fi

if [ -x "$bin/mlp_cuda" ]; then
    wide=8192,8192,8192,8192,8192,256
    check 'mlp_cublas' 300 "${ranks[@]}" 1 "$bin/mlp_cublas"
    for precision in fp32 tf32 bf16; do
        measure "8,192 units, $precision" 'TFLOP/s' 900 "${ranks[@]}" "$gpus" "$bin/mlp_cuda" --synthetic \
            --layers "$wide" --batch 4096 --steps 30 --lr 0.0001 --precision "$precision"
        if [ -d "$data" ]; then
            measure "Fashion-MNIST, $precision" '^RESULT' 900 "${ranks[@]}" "$gpus" "$bin/mlp_cuda" \
                --data "$data" --precision "$precision"
        fi
    done
    if [ -d "$data" ]; then
        measure 'Fashion-MNIST, graphs' '^RESULT' 900 "${ranks[@]}" "$gpus" "$bin/mlp_cuda" --data "$data" \
            --graph
    else
        row 'Fashion-MNIST' "skipped: no data in $data"
    fi
else
    row training 'skipped: cuBLAS is not found'
fi

printf '\n'
cat "$table"
printf '%d failed\n' "$failures"
[ "$failures" -eq 0 ]
