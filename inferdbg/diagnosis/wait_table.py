"""What a thread waits for, told by the calls that it stands in: names of CPython, PyTorch, vLLM and others, as data."""

from typing import Literal, NamedTuple

Kind = Literal[
    "collective",
    "peer",
    "gpu",
    "queue",
    "pipe",
    "socket",
    "events",
    "gil",
    "lock",
    "disk",
    "child",
    "thread",
    "pool",
    "monitor",
    "sleep",
    "compile",
    "import",
    "load",
    "stopped",
    "kernel",
    "python",
    "native",
    "unknown",
]
"""``peer``: one other rank. ``events``: the event loop of a front end. ``pool`` and ``monitor``: threads whose waiting
tells nothing. ``compile``, ``import``, ``load``: long work at the host. ``kernel``: inside a system call."""

PLAIN: frozenset[Kind] = frozenset({"lock", "queue", "pipe", "socket", "child", "thread", "pool", "monitor"})
"""Kinds that a caller further out may explain; the others say all there is."""


class Row(NamedTuple):
    """``functions``: names without their class; ``gloo::*`` is how names begin. ``file``: how the path ends; "" any.
    ``words``: what it waits for ({function}: its own name), or of work what it does. ``idle``: no server is slow
    because of it. ``caller``: counts only around a call inside it that waits. ``asleep``: counts as the innermost call
    only where the thread does not run: it waits in C, or works in C."""

    functions: str
    file: str
    kind: Kind
    words: str
    idle: bool = False
    caller: bool = False
    asleep: bool = False


def _idle(functions: str, file: str, kind: Kind, words: str) -> Row:
    """Around a call that waits it says that nothing is wrong."""
    return Row(functions, file, kind, words, idle=True, caller=True)


_CPYTHON = (  # Lib/ of 3.10 to 3.14
    Row("wait acquire", "threading.py", "lock", "a lock, a condition or an event (threading)"),
    Row("join _wait_for_tstate_lock", "threading.py", "thread", "a thread to end"),
    Row("get", "queue.py", "queue", "something in a queue"),
    Row("put join", "queue.py", "queue", "room in a queue"),
    Row("get", "multiprocessing/queues.py", "queue", "something in a queue between processes"),
    Row("put", "multiprocessing/queues.py", "queue", "room in a queue between processes"),
    Row("_recv _recv_bytes recv recv_bytes", "multiprocessing/connection.py", "pipe", "a message in a pipe"),
    Row("_send _send_bytes send send_bytes", "multiprocessing/connection.py", "pipe", "room in a pipe"),
    Row("wait poll _poll", "multiprocessing/connection.py", "pipe", "pipes or processes, several at once"),
    Row("accept", "multiprocessing/connection.py", "socket", "a connection"),
    Row("acquire __enter__", "multiprocessing/synchronize.py", "lock", "a lock between processes"),
    Row("poll wait", "multiprocessing/popen_fork.py", "child", "a child process to end"),
    Row("join", "multiprocessing/process.py", "child", "a child process to end"),
    Row("select", "selectors.py", "socket", "sockets or pipes"),
    Row("_run_once", "asyncio/base_events.py", "events", "events (event loop)", caller=True),
    Row("run_forever run_until_complete", "asyncio/base_events.py", "events", "events (event loop)", caller=True),
    Row("run", "asyncio/runners.py", "events", "events (event loop)", asleep=True),
    Row("accept readinto", "socket.py", "socket", "a socket"),
    Row("recv recv_into read", "ssl.py", "socket", "a socket"),
    Row(
        "_try_wait wait _wait communicate _communicate call check_call run", "subprocess.py", "child", "a child process"
    ),
    Row("_worker", "concurrent/futures/thread.py", "pool", "work (thread pool)", idle=True, asleep=True),
    Row("result exception", "concurrent/futures/_base.py", "thread", "the result of other work (a future)"),
    Row(
        "main",
        "multiprocessing/resource_tracker.py",
        "monitor",
        "its parent (resource tracker)",
        idle=True,
        asleep=True,
    ),
    Row("main", "multiprocessing/forkserver.py", "monitor", "its parent (fork server)", idle=True, caller=True),
)
_COLLECTIVES = (
    "all_reduce all_reduce_coalesced reduce broadcast broadcast_object_list all_gather all_gather_coalesced "
    "all_gather_into_tensor all_gather_single all_gather_object gather gather_object scatter scatter_object_list "
    "reduce_scatter reduce_scatter_tensor reduce_scatter_single all_to_all all_to_all_single barrier monitored_barrier"
)
_TORCH = (  # torch 2.6 to 2.13: torch/distributed/distributed_c10d.py, torch/cuda/
    Row(_COLLECTIVES, "torch/distributed/distributed_c10d.py", "collective", "{function}"),
    Row(
        "init_process_group _new_process_group_helper _store_based_barrier new_group",
        "torch/distributed/distributed_c10d.py",
        "collective",
        "{function}: all ranks to meet",
    ),
    Row(
        "_tcp_rendezvous_handler _create_c10d_store", "torch/distributed/rendezvous.py", "collective", "the rendezvous"
    ),
    Row(
        "send recv isend irecv batch_isend_irecv send_object_list recv_object_list",
        "torch/distributed/distributed_c10d.py",
        "peer",
        "{function} with another rank",
    ),
    Row("synchronize wait", "torch/cuda/__init__.py", "gpu", "the GPU (synchronize)"),
    Row("synchronize wait", "torch/cuda/streams.py", "gpu", "the GPU ({function} of a stream or an event)"),
    Row(
        "_read_thread main",
        "torch/_inductor/compile_worker/subproc_pool.py",
        "pool",
        "work (compilers)",
        True,
        asleep=True,
    ),
)
_ZMQ = (  # pyzmq 25 to 27
    Row("poll", "zmq/sugar/poll.py", "socket", "a message (ZMQ)"),
    Row("poll recv recv_multipart recv_pyobj", "zmq/sugar/socket.py", "socket", "a message (ZMQ)"),
    Row("recv recv_multipart", "zmq/backend/cython/_zmq.py", "socket", "a message (ZMQ)"),
    Row("send send_multipart", "zmq/sugar/socket.py", "socket", "its message to be sent (ZMQ)"),
)
_SHM = "vllm/distributed/device_communicators/shm_broadcast.py"
_MULTIPROC = "vllm/v1/executor/multiproc_executor.py"
_PYNCCL = "vllm/distributed/device_communicators/pynccl.py"
_VLLM = (  # vLLM 0.9 to 0.32
    Row("sched_yield", "vllm/distributed/utils.py", "queue", "a message in shared memory"),
    Row("wait acquire_read dequeue recv", _SHM, "queue", "a message in shared memory"),
    Row("acquire_write enqueue", _SHM, "queue", "a reader that lags: no room in shared memory"),
    Row("wait_until_ready", _SHM, "collective", "all readers of a shared-memory queue to come"),
    Row("get_response collective_rpc _wait_for_response result", _MULTIPROC, "queue", "a worker's answer", caller=True),
    Row("worker_busy_loop", _MULTIPROC, "queue", "work from the engine core", caller=True),
    _idle("async_output_busy_loop", _MULTIPROC, "pool", "outputs to copy"),
    _idle("monitor_workers", _MULTIPROC, "monitor", "a worker to end (monitor)"),
    _idle("death_pipe_monitor monitor_parent_death", _MULTIPROC, "monitor", "its parent to end (monitor)"),
    Row("_process_input_queue", "vllm/v1/engine/core.py", "queue", "requests", caller=True),
    _idle("process_input_sockets", "vllm/v1/engine/core.py", "socket", "messages of the front end"),
    _idle("process_output_sockets", "vllm/v1/engine/core.py", "queue", "outputs to send"),
    _idle("_run", "vllm/v1/engine/utils.py", "monitor", "a signal (monitor)"),
    _idle("monitor_engine_liveness", "vllm/v1/engine/utils.py", "monitor", "an engine core to end (monitor)"),
    _idle("monitor_engine_cores", "vllm/v1/engine/core_client.py", "monitor", "an engine core to end (monitor)"),
    Row(
        "get_output process_outputs_socket",
        "vllm/v1/engine/core_client.py",
        "queue",
        "the engine core's outputs",
        caller=True,
    ),
    Row(
        "all_reduce all_gather all_gatherv reduce_scatter reduce_scatterv reduce broadcast",
        _PYNCCL,
        "collective",
        "{function}",
    ),
    Row("send recv", _PYNCCL, "peer", "{function} with another rank"),
    Row("custom_all_reduce", "device_communicators/custom_all_reduce.py", "collective", "all_reduce"),
)
_OTHERS = (
    Row("broadcast_pyobj", "sglang/srt/utils/common.py", "collective", "requests that rank 0 hands on", caller=True),
    Row("broadcast_pyobj", "sglang/srt/utils.py", "collective", "requests that rank 0 hands on", caller=True),
    _idle("run", "tqdm/_monitor.py", "monitor", "its timer (progress bar)"),
    _idle("run", "anyio/_backends/_asyncio.py", "pool", "work (thread pool)"),
    Row("_obey_on_engine", "engine/server/engine_thread.py", "queue", "requests", asleep=True),
    Row("__call__", "triton/backends/nvidia/driver.py", "gpu", "a kernel launch"),
)
PYTHON: tuple[Row, ...] = (*_CPYTHON, *_TORCH, *_ZMQ, *_VLLM, *_OTHERS)

TRANSPARENT = frozenset(
    {
        ("wrapper", "torch/distributed/c10d_logger.py"),
        ("__enter__", "contextlib.py"),
        ("decorate_context", "torch/utils/_contextlib.py"),
    }
)
"""Calls that only hand on: what stands around them explains what stands in them."""

WORK: tuple[Row, ...] = (
    Row(
        "make_cubin make_ptx make_ttgir make_llir",
        "triton/backends/nvidia/compiler.py",
        "compile",
        "compiles a Triton kernel",
    ),
    Row("compile", "triton/compiler/compiler.py", "compile", "compiles a Triton kernel"),
    Row("_do_compile", "triton/runtime/jit.py", "compile", "compiles a Triton kernel"),
    Row("_bench benchmark", "triton/runtime/autotuner.py", "compile", "tunes a Triton kernel"),
    Row("compile_fx _compile_fx_inner", "torch/_inductor/compile_fx.py", "compile", "compiles (torch.compile)"),
    Row(
        "call_user_compiler _call_user_compiler", "torch/_dynamo/output_graph.py", "compile", "compiles (torch.compile)"
    ),
    Row("_compile _compile_inner", "torch/_dynamo/convert_frame.py", "compile", "compiles (torch.compile)"),
    Row("_jit_compile _run_ninja_build", "torch/utils/cpp_extension.py", "compile", "builds a C++ extension"),
    Row("run_ninja", "flashinfer/jit/cpp_ext.py", "compile", "builds a kernel (FlashInfer)"),
    Row("capture_model", "vllm/v1/worker/gpu_model_runner.py", "compile", "captures CUDA graphs"),
    Row("load_model", "vllm/v1/worker/gpu_model_runner.py", "load", "loads the model"),
    Row("load", "engine/loading.py", "load", "loads the model"),
    Row("_find_and_load", "<frozen importlib._bootstrap>", "import", "imports a module"),
)
"""Long work that the host does, wherever in a stack it stands. Triton 3, torch 2.6 and later, vLLM 0.9 and later."""

NATIVE: tuple[Row, ...] = (  # glibc 2.28 and later, CPython, libtorch, NCCL 2, CUDA 12
    Row("take_gil*", "", "gil", "the GIL"),
    Row(
        "PyThread_acquire_lock* lock_PyThread_acquire_lock* acquire_timed PyMutex_Lock* _PyMutex_LockTimed*",
        "",
        "lock",
        "a lock",
    ),
    _idle("ncclProxyProgress ncclProxyService", "", "monitor", "work (NCCL's proxy)"),
    _idle("c10d::ProcessGroupNCCL::watchdog* c10d::ProcessGroupNCCL::heartbeat*", "", "monitor", "its timer (NCCL)"),
    _idle("c10d::ProcessGroupNCCL::Watchdog* c10d::ProcessGroupNCCL::Heartbeat*", "", "monitor", "its timer (NCCL)"),
    _idle("c10d::ProcessGroupGloo::runLoop*", "", "pool", "work (gloo)"),
    _idle("gloo::transport::tcp::Loop::run*", "", "monitor", "its sockets (gloo)"),
    _idle("c10d::detail::* c10d::TCPStore*", "", "monitor", "ranks that look something up (TCP store)"),
    Row(
        "c10d::Work::wait* c10d::ProcessGroupGloo::* c10d::ProcessGroupNCCL::WorkNCCL*",
        "",
        "collective",
        "a collective",
    ),
    Row("gloo::* c10d::Async*", "", "collective", "a collective"),
    Row("ncclAllReduce* ncclAllGather* ncclReduce* ncclBroadcast* ncclAllToAll*", "", "collective", "{function}"),
    Row("ncclGroupEnd ncclComm*", "", "collective", "NCCL ({function})"),
    Row("ncclSend ncclRecv", "", "peer", "{function}"),
    Row(
        "tensorrt_llm::plugins::Allgather* tensorrt_llm::plugins::Allreduce*",
        "",
        "collective",
        "a collective (TensorRT-LLM)",
    ),
    _idle("tensorrt_llm::executor::Executor::Impl::awaitResponses*", "", "queue", "responses"),
    Row(
        "cudaStreamSynchronize cudaEventSynchronize cudaDeviceSynchronize cuStreamSynchronize cuEventSynchronize "
        "cuCtxSynchronize cudaStreamQuery cuStreamQuery cudaMemcpy* cuMemcpy*",
        "",
        "gpu",
        "the GPU ({function})",
    ),
    Row("cudaLaunch* cuLaunch*", "", "gpu", "a kernel launch ({function})"),
    Row("cudaMalloc* cuMemAlloc* cuMemCreate*", "", "gpu", "GPU memory ({function})"),
    Row("cuModuleLoad* cuLibraryLoad*", "", "compile", "a kernel to load ({function})"),
    Row("dlopen _dl_open* dl_open_worker", "", "disk", "a library to load (dlopen)"),
    Row("pthread_join* std::thread::join* __pthread_clockjoin*", "", "thread", "a thread to end"),
    _idle("blas_thread_server", "", "pool", "work (OpenBLAS)"),
    _idle(
        "gomp_thread_start gomp_team_barrier_wait* gomp_barrier_wait* gomp_simple_barrier*", "", "pool", "work (OpenMP)"
    ),
    Row("uv_run uv.io_poll uv__io_poll event_base_loop*", "", "events", "events (event loop)"),
    Row("zmq_poll zmq::*", "", "socket", "a message (ZMQ)"),
    Row("poll __poll ppoll select epoll_wait* epoll_pwait* __GI_epoll* __GI___poll*", "", "socket", "sockets or pipes"),
    Row("recv recvfrom recvmsg __recv accept accept4 connect", "", "socket", "a socket"),
    Row("read __read __GI___read readv write __write", "", "pipe", "a pipe or a file"),
    Row("pread64 fsync fdatasync __GI___pread", "", "disk", "a file"),
    Row("waitpid wait4 __wait4 __GI___wait4 waitid", "", "child", "a child process"),
    Row("clock_nanosleep nanosleep __GI___clock_nanosleep usleep __clock_nanosleep", "", "sleep", "sleeps"),
    Row(
        "pthread_cond_* ___pthread_cond_* __pthread_cond_* __futex_* futex_* __GI___futex* __lll_lock* "
        "pthread_mutex_lock* ___pthread_mutex_lock* sem_wait* __new_sem_wait* std::condition_variable::wait*",
        "",
        "lock",
        "a lock or a condition in native code",
    ),
)

KERNEL: tuple[tuple[str, Kind, str], ...] = (  # kernel/, fs/, net/ of Linux 4.18 to 6.18; /proc/PID/wchan
    ("futex_", "lock", "a lock or a condition in native code"),
    ("ep_poll", "socket", "sockets or pipes"),
    ("do_epoll_wait", "socket", "sockets or pipes"),
    ("do_sys_poll", "socket", "sockets or pipes"),
    ("poll_schedule_timeout", "socket", "sockets or pipes"),
    ("do_select", "socket", "sockets or pipes"),
    ("hrtimer_nanosleep", "sleep", "sleeps"),
    ("do_nanosleep", "sleep", "sleeps"),
    ("do_wait", "child", "a child process"),
    ("kernel_wait", "child", "a child process"),
    ("pipe_read", "pipe", "a message in a pipe"),
    ("anon_pipe_read", "pipe", "a message in a pipe"),
    ("pipe_write", "pipe", "room in a pipe"),
    ("anon_pipe_write", "pipe", "room in a pipe"),
    ("pipe_wait", "pipe", "a pipe"),
    ("unix_stream_", "socket", "a socket"),
    ("unix_wait", "socket", "a socket"),
    ("sk_wait_data", "socket", "a socket"),
    ("sk_stream_wait", "socket", "room in a socket"),
    ("wait_woken", "socket", "a socket or a terminal"),
    ("inet_csk_accept", "socket", "a connection"),
    ("__skb_wait", "socket", "a socket"),
    ("do_sigtimedwait", "monitor", "a signal"),
    ("sigsuspend", "monitor", "a signal"),
    ("io_cqring_wait", "disk", "files or sockets (io_uring)"),
    ("folio_wait", "disk", "a page of a file"),
    ("__folio_lock", "disk", "a page of a file"),
    ("wait_on_page", "disk", "a page of a file"),
    ("io_schedule", "disk", "the disk"),
    ("blk_", "disk", "the disk"),
    ("blkdev_", "disk", "the disk"),
    ("jbd2_", "disk", "the disk"),
    ("ext4_", "disk", "the disk"),
    ("xfs_", "disk", "the disk"),
    ("nfs", "disk", "a file server (NFS)"),
    ("rpc_wait", "disk", "a file server (NFS)"),
    ("request_wait_answer", "disk", "a file system in user space (FUSE)"),
    ("fuse_", "disk", "a file system in user space (FUSE)"),
    ("flock_lock", "lock", "a lock on a file"),
    ("locks_lock", "lock", "a lock on a file"),
    ("uvm_", "gpu", "the GPU driver"),
    ("nv_", "gpu", "the GPU driver"),
    ("os_acquire", "gpu", "the GPU driver"),
    ("mmap_read_lock", "kernel", "its own memory map"),
    ("rwsem_down", "kernel", "a lock of the kernel"),
)
"""How the function begins that a thread sleeps in."""

NATIVE_THREADS: tuple[
    tuple[str, str], ...
] = (  # c10::setThreadName of torch, src/proxy.cc of NCCL, libzmq, CUDA driver
    ("pt_gloo_runloop", "work (gloo)"),
    ("gloo_tcp_loop", "its sockets (gloo)"),
    ("pt_nccl_", "its timer (NCCL)"),
    ("NCCL ", "work (NCCL's proxy)"),
    ("pt_tcpstore", "ranks that look something up (TCP store)"),
    ("pt_autograd", "work (autograd)"),
    ("ZMQbg/", "its sockets (ZMQ)"),
    ("cuda", "the GPU driver"),
    ("jemalloc_bg", "its timer (allocator)"),
    ("tokio-", "work (thread pool)"),
    ("rayon", "work (thread pool)"),
    ("iou-", "files or sockets (io_uring)"),
)
"""Names that libraries give to threads without Python."""
