/* What rdmesh-verbs calls: libibverbs, and the kernel's command ABI by write(). */
#include <infiniband/verbs.h>
#include <rdma/ib_user_verbs.h>
