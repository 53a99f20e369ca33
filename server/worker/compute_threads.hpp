#pragma once

#include <cstdint>

namespace distilld {

/// Sets the number of threads that libtorch computes with; 0 = one a core. Before any tensor operation.
void set_compute_threads(std::uint32_t threads);

}  // namespace distilld
