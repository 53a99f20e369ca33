#include "server/worker/machine/compute_threads.hpp"

#include <ATen/Parallel.h>

#include "base/cores.hpp"

namespace distilld {

std::uint32_t set_compute_threads(std::uint32_t threads) {
    if (threads == 0) {
        threads = core_count();
    }
    at::set_num_threads(static_cast<int>(threads));
    return threads;
}

}  // namespace distilld
