#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "server/supervisor/worker_process.hpp"

namespace distilld::slurm {

/// The value of an environment variable; nullopt: it is not set.
using Variables = std::function<std::optional<std::string>(const char* name)>;

/// What Slurm has given to the job of this process, which is its batch script.
struct Allocation {
    std::uint64_t job = 0;
    std::vector<std::string> nodes;  ///< this one is the first
    std::string host;                ///< name or address of this node for the others
    std::string config;              ///< SLURM_CONF; empty: where Slurm looks
    std::filesystem::path srun;
};

/// From Slurm's variables. `host` is MASTER_ADDR, or the address from which this node reaches the last one, or else
/// its name. Looks up names, which blocks. The error names the variable or the program.
[[nodiscard]] Result<Allocation> read_allocation(const Variables& variables);

/// `worker`, started on a node of the allocation by a step of srun, which passes its channel and its output on.
[[nodiscard]] WorkerProcessOptions on_node(const Allocation& allocation, const std::string& node,
                                           WorkerProcessOptions worker);

}  // namespace distilld::slurm
