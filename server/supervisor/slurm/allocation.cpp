#include "server/supervisor/slurm/allocation.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/udp.hpp>
#include <utility>

#include "base/ascii.hpp"
#include "server/supervisor/command.hpp"
#include "server/supervisor/slurm/slurm_output.hpp"

namespace distilld::slurm {
namespace {

using boost::asio::ip::udp;

/// The address from which this machine reaches another. A machine's own name often stands for an address of the
/// loopback interface there.
std::optional<std::string> address_towards(const std::string& host) {
    boost::asio::io_context context(1);
    boost::system::error_code failed;
    constexpr const char* kAnyPort = "9";
    for (const auto& found : udp::resolver(context).resolve(host, kAnyPort, failed)) {
        udp::socket socket(context);
        socket.connect(found.endpoint(), failed);  // sends nothing
        if (!failed) {
            return socket.local_endpoint().address().to_string();
        }
    }
    return std::nullopt;
}

Error missing(const char* name) {
    return invalid_input(std::string(name) +
                         " in the environment: is missing or cannot be read; a batch script of Slurm has it, and only "
                         "there can workers be started on several nodes");
}

}  // namespace

Result<Allocation> read_allocation(const Variables& variables) {
    Allocation found;
    const auto job = number_from<std::uint64_t>(variables("SLURM_JOB_ID").value_or(""));
    if (!job) {
        return missing("SLURM_JOB_ID");
    }
    found.job = *job;
    found.nodes = read_host_list(variables("SLURM_JOB_NODELIST").value_or(""));
    if (found.nodes.empty()) {
        return missing("SLURM_JOB_NODELIST");
    }
    auto srun = find_program("srun", variables("PATH").value_or(""));
    if (!srun) {
        return invalid_input("srun is not in a folder of PATH on node " + found.nodes.front() +
                             ": install Slurm's commands (Debian: slurm-client)");
    }
    found.srun = *std::move(srun);
    found.config = variables("SLURM_CONF").value_or("");
    found.host = variables("MASTER_ADDR").value_or("");
    if (found.host.empty()) {
        found.host = address_towards(found.nodes.back()).value_or(found.nodes.front());
    }
    return found;
}

WorkerProcessOptions on_node(const Allocation& allocation, const std::string& node, WorkerProcessOptions worker) {
    // --overlap: each rank of a node may use all that the job has there, as the ranks on the first node may.
    std::vector<std::string> words{"--jobid=" + std::to_string(allocation.job),
                                   "--nodes=1",
                                   "--ntasks=1",
                                   "--nodelist=" + node,
                                   "--overlap",
                                   "--quiet",
                                   "--export=ALL",
                                   "--mpi=none",
                                   worker.program.string()};
    words.insert(words.end(), worker.arguments.begin(), worker.arguments.end());
    words.emplace_back("--stdio");
    worker.program = allocation.srun;
    worker.arguments = std::move(words);
    worker.channel = ChannelAt::stdio;
    if (!allocation.config.empty()) {
        worker.environment.push_back("SLURM_CONF=" + allocation.config);
    }
    return worker;
}

}  // namespace distilld::slurm
