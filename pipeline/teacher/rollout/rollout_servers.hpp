#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "net/host_resolver.hpp"
#include "pipeline/core/rollout_plan.hpp"
#include "pipeline/core/spec_sections.hpp"
#include "pipeline/teacher/rollout/kept_rollouts.hpp"
#include "pipeline/teacher/teacher_source.hpp"

namespace distilld {

struct RolloutServersOptions {
    RolloutPlan plan;
    /// Of the weights: NAME-vVERSION. No other run, nor another attempt of this one, may have used it: servers keep
    /// the keys and values of a prompt under the adapter's name.
    std::string name;
    /// How the names of all attempts of this run begin. Adapters of others than this one are taken away: who was killed
    /// has left them.
    std::string name_of_run;
    /// Absolute; the weights after n steps are in vN below it. For the probe, `probe` has weights that must change the
    /// answers, and `first` the first ones if the student is not an adapter.
    std::filesystem::path folder;
    bool whole = false;  ///< the student is not an adapter: a server has one version at a time
    std::vector<std::int32_t> probe_prompt;
    std::shared_ptr<const KeptRollouts> kept;  ///< answers that need not be asked for; null: none
    std::function<void(const std::string&)> on_warning;
    HostLookup lookup = look_up_host;
    HostRule hosts{};
};

/// The servers that write the student's answers (RolloutServer), as RolloutCodec describes them. The probe, which an
/// endpoint must pass before its first answer, finds out whether weights reach the model, and whether the same seed
/// gives the same answer alone, among others, and at every endpoint. `io` runs one thread or is a strand. Errors name
/// the endpoint. Adapters are unloaded by settle().
[[nodiscard]] Result<std::unique_ptr<TeacherSource>> make_rollout_servers(boost::asio::any_io_executor io,
                                                                          boost::asio::any_io_executor decode,
                                                                          const RolloutSpec& spec,
                                                                          RolloutServersOptions options);

}  // namespace distilld
