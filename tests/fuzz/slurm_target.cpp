// What Slurm's commands print: names of jobs and nodes are those of other users.
#include <set>

#include "base/utf8.hpp"
#include "server/supervisor/slurm/slurm_output.hpp"
#include "tests/fuzz/targets.hpp"

namespace distilld::fuzz {

void read_slurm(std::string_view input) {
    static_cast<void>(accepted(slurm::read_job_id(input)));
    for (const auto& entry : slurm::read_queue(input)) {
        demand(!entry.state.empty() && is_utf8(entry.state) && is_utf8(entry.name), "a job has a state and a name");
        demand(slurm::read_host_list(entry.nodes).size() <= slurm::kMaxHosts, "a list of hosts is bounded");
    }
    if (const auto record = slurm::read_record(input)) {
        demand(!record->state.empty() && is_utf8(record->state), "a record has a state");
    }
    std::set<std::string> names;
    for (const Node& node : slurm::read_nodes(input)) {
        demand(!node.name.empty() && is_utf8(node.name) && is_utf8(node.state), "a node has a name");
        demand(names.insert(node.name).second, "a node is listed once");
    }
    for (const std::string& host : slurm::read_host_list(input)) {
        demand(!host.empty() && is_utf8(host), "a host has a name");
    }
}

std::vector<std::string> slurm_seeds() {
    return {"12;cluster\n", "4|PENDING||distilld-job-1\n3|RUNNING|n[1-2],b[08-10]x|a|b\n",
            "JobId=3 JobName=a JobState=FAILED Reason=None ExitCode=7:0 \n",
            "n1|mixed|2|1|(null)\nn2|idle*|64|257000|gpu:a100:4(S:0-1),shard:8\n", "r[0-1]n[1,3],m"};
}

}  // namespace distilld::fuzz
