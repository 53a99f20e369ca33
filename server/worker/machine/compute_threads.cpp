#include "server/worker/machine/compute_threads.hpp"

#include <ATen/Parallel.h>

#include "base/cores.hpp"
#include "models/network/compute_thread_scope.hpp"

namespace distilld {

std::uint32_t set_compute_threads(std::uint32_t threads) {
    if (threads == 0) {
        threads = core_count();
    }
    at::set_num_threads(static_cast<int>(threads));
    return threads;
}

void compute_alone() {
    const models::ComputeThreadScope others_keep_theirs;
    at::set_num_threads(1);
}

}  // namespace distilld
