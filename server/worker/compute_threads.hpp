#pragma once

#include <cstdint>

namespace distilld {

/// Sets the number of threads that libtorch computes with; 0 = one a core that
/// the process may run on. Returns the number. Before any tensor
/// operation.
std::uint32_t set_compute_threads(std::uint32_t threads);

}  // namespace distilld
