#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "server/supervisor/launcher.hpp"
#include "server/supervisor/slurm/slurm_state.hpp"

/// Reads what Slurm's commands print, of versions 22.05 to 24.11. Lines that cannot be read are left out, because other
/// users' jobs and nodes may have any names. Pure.
namespace distilld::slurm {

/// A job as squeue lists it.
struct QueueEntry {
    std::uint64_t id = 0;
    std::string state;  ///< PENDING, RUNNING, COMPLETED, …
    std::string nodes;  ///< "n[1-2]"; empty before the start
    std::string why;    ///< it waits: "Resources"; "None" if that is not known
    std::string name;
};

inline constexpr const char* kQueueFormat = "%A|%T|%N|%r|%j";  ///< for squeue -o
inline constexpr const char* kNodeFormat = "%N|%T|%c|%m|%G";   ///< for sinfo -N -o

/// The id in the answer of sbatch --parsable, "12" or "12;cluster".
[[nodiscard]] Result<std::uint64_t> read_job_id(std::string_view text);

[[nodiscard]] std::vector<QueueEntry> read_queue(std::string_view text);

/// The answer of `scontrol -o show job ID`; nullopt if it has no state.
[[nodiscard]] std::optional<JobRecord> read_record(std::string_view text);

/// Without jobs, and each node once, in the order of the answer.
[[nodiscard]] std::vector<Node> read_nodes(std::string_view text);

/// The names in a list of Slurm: "a[1-2,07],b" are a1, a2, a07 and b. At most kMaxHosts of them; none if the list
/// cannot be read.
[[nodiscard]] std::vector<std::string> read_host_list(std::string_view list);
inline constexpr std::size_t kMaxHosts = 65536;

}  // namespace distilld::slurm
