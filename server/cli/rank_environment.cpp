#include "server/cli/rank_environment.hpp"

#include <cstdint>
#include <string_view>
#include <utility>

#include "base/ascii.hpp"

namespace distilld::cli {

namespace {

constexpr std::uint32_t kMaxRanks = 1024;
/// Ports that Slurm's jobs meet at, unless MASTER_PORT says another: outside the range that Linux gives to clients.
constexpr std::uint32_t kFirstPort = 20'000;
constexpr std::uint32_t kPorts = 10'000;

Error wrong(const char* name, const std::string& why) {
    return invalid_input(std::string(name) + " in the environment: " + why);
}

class Reader {
  public:
    explicit Reader(const EnvironmentLookup& environment) : environment_(environment) {}

    [[nodiscard]] bool has(const char* name) const { return environment_(name).has_value(); }

    [[nodiscard]] Result<std::string> text(const char* name) const {
        std::optional<std::string> value = environment_(name);
        if (!value || value->empty()) {
            return wrong(name, "is missing; the launcher of the ranks sets it");
        }
        return std::move(*value);
    }

    [[nodiscard]] Result<std::uint32_t> number(const char* name, std::uint32_t least, std::uint32_t most) const {
        const Result<std::string> value = text(name);
        if (!value) {
            return value.error();
        }
        const std::optional<std::uint32_t> number = number_from<std::uint32_t>(*value);
        if (!number || *number < least || *number > most) {
            return wrong(name, "\"" + value->substr(0, 40) + "\" is not a whole number from " + std::to_string(least) +
                                   " to " + std::to_string(most));
        }
        return *number;
    }

    /// `otherwise` if the variable is not set.
    [[nodiscard]] Result<std::uint32_t> number(const char* name, std::uint32_t least, std::uint32_t most,
                                               std::uint32_t otherwise) const {
        return has(name) ? number(name, least, most) : Result<std::uint32_t>(otherwise);
    }

  private:
    const EnvironmentLookup& environment_;
};

/// The names of a launcher's variables.
struct Names {
    const char* rank;
    const char* count;
    const char* host;
    const char* port;
};

constexpr Names kTorchrun{"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"};
constexpr Names kTrainJob{"PET_NODE_RANK", "PET_NNODES", "PET_MASTER_ADDR", "PET_MASTER_PORT"};

Result<void> read_rank(const Reader& read, const char* rank, const char* count, RankPlace& place) {
    const Result<std::uint32_t> ranks = read.number(count, 1, kMaxRanks);
    if (!ranks) {
        return ranks.error();
    }
    const Result<std::uint32_t> number = read.number(rank, 0, *ranks - 1);
    if (!number) {
        return number.error();
    }
    place.count = *ranks;
    place.rank = *number;
    return {};
}

Result<void> read_meeting_point(const Reader& read, const Names& names, RankPlace& place) {
    Result<std::string> host = read.text(names.host);
    if (!host) {
        return host.error();
    }
    const Result<std::uint32_t> port = read.number(names.port, 1, 65535);
    if (!port) {
        return port.error();
    }
    place.host = std::move(*host);
    place.port = static_cast<std::uint16_t>(*port);
    return {};
}

Result<void> read_torchrun(const Reader& read, RankPlace& place) {
    if (Result<void> found = read_rank(read, kTorchrun.rank, kTorchrun.count, place); !found || place.count == 1) {
        return found;
    }
    const Result<std::uint32_t> local = read.number("LOCAL_WORLD_SIZE", 1, kMaxRanks, 1);
    const Result<std::uint32_t> local_rank = read.number("LOCAL_RANK", 0, kMaxRanks, 0);
    const Result<std::uint32_t> attempt = read.number("TORCHELASTIC_RESTART_COUNT", 0, 1'000'000, 0);
    for (const auto* number : {&local, &local_rank, &attempt}) {
        if (!*number) {
            return number->error();
        }
    }
    place.local_count = *local;
    place.local_rank = *local_rank;
    place.attempt = *attempt;
    const Result<std::string> served = read.text("TORCHELASTIC_USE_AGENT_STORE");
    place.hosted = served && *served == "True";
    return read_meeting_point(read, kTorchrun, place);
}

Result<void> read_train_job(const Reader& read, RankPlace& place) {
    if (Result<void> found = read_rank(read, kTrainJob.rank, kTrainJob.count, place); !found || place.count == 1) {
        return found;
    }
    if (const Result<std::string> per_node = read.text("PET_NPROC_PER_NODE"); per_node && *per_node != "1") {
        return wrong("PET_NPROC_PER_NODE", "is " + per_node->substr(0, 40) +
                                               ", but distilld is one process; let torchrun start several (torchrun "
                                               "--no-python distilld run …)");
    }
    return read_meeting_point(read, kTrainJob, place);
}

/// The first host of Slurm's list: "n1" of "n1,n2", "node07" of "node[07-09,12]".
std::string first_host(std::string_view list) {
    const std::size_t end = list.find_first_of(",[");
    std::string host(list.substr(0, end));
    if (end == std::string_view::npos || list[end] == ',') {
        return host;
    }
    const std::string_view numbers = list.substr(end + 1);
    host += numbers.substr(0, numbers.find_first_of(",-]"));
    const std::size_t close = numbers.find(']');
    const std::string_view rest = close == std::string_view::npos ? "" : numbers.substr(close + 1);
    return host.append(rest.substr(0, rest.find(',')));
}

Result<void> read_slurm(const Reader& read, RankPlace& place) {
    if (Result<void> found = read_rank(read, "SLURM_PROCID", "SLURM_NTASKS", place); !found || place.count == 1) {
        return found;
    }
    const Result<std::uint32_t> nodes = read.number("SLURM_NNODES", 1, kMaxRanks, 1);
    const Result<std::uint32_t> job = read.number("SLURM_JOB_ID", 0, UINT32_MAX, 0);
    const Result<std::uint32_t> step = read.number("SLURM_STEP_ID", 0, UINT32_MAX);
    const Result<std::uint32_t> local_rank = read.number("SLURM_LOCALID", 0, kMaxRanks, 0);
    for (const auto* number : {&nodes, &job, &step, &local_rank}) {
        if (!*number) {
            return number->error();
        }
    }
    const std::uint64_t chosen = kFirstPort + (std::uint64_t{*job} + *step) % kPorts;
    const Result<std::uint32_t> port = read.number("MASTER_PORT", 1, 65535, static_cast<std::uint32_t>(chosen));
    if (!port) {
        return port.error();
    }
    place.local_count = (place.count + *nodes - 1) / *nodes;
    place.local_rank = *local_rank;
    place.port = static_cast<std::uint16_t>(*port);
    Result<std::string> host = read.text("MASTER_ADDR");
    if (!host) {
        const Result<std::string> list =
            read.text(read.has("SLURM_STEP_NODELIST") ? "SLURM_STEP_NODELIST" : "SLURM_JOB_NODELIST");
        if (!list) {
            return list.error();
        }
        host = first_host(*list);
    }
    place.host = std::move(*host);
    return {};
}

}  // namespace

Result<std::optional<RankPlace>> rank_from_environment(const EnvironmentLookup& environment) {
    const Reader read(environment);
    RankPlace place;
    Result<void> found;
    if (read.has("RANK")) {
        found = read_torchrun(read, place);
    } else if (read.has("PET_NODE_RANK")) {
        found = read_train_job(read, place);
    } else if (read.has("SLURM_STEP_ID") && read.has("SLURM_PROCID")) {  // srun's; a batch script has no step
        found = read_slurm(read, place);
    }
    if (!found) {
        return found.error();
    }
    return place.count > 1 ? std::optional(place) : std::nullopt;
}

}  // namespace distilld::cli
