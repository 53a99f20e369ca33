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
    /// Of the adapters: NAME-vVERSION. No other run, nor another attempt of this one, may have used it: servers keep
    /// the keys and values of a prompt under the adapter's name.
    std::string name;
    std::filesystem::path folder;  ///< absolute; the adapter after n steps is in vN below it
    /// An adapter that must change the model's answers, for the probe. In the folder `probe` below `folder`.
    std::vector<std::int32_t> probe_prompt;
    std::shared_ptr<const KeptRollouts> kept;  ///< answers that need not be asked for; null: none
    std::function<void(const std::string&)> on_warning;
    HostLookup lookup = look_up_host;
    HostRule hosts{};
};

/// The servers that write the student's answers. A fetch first gives its endpoint the adapter of the micro-batch's
/// version, if it has not got it or has lost it, and takes away those that no step needs any more; the answers are
/// those that RolloutCodec describes. The probe, which an endpoint must pass before its first answer, finds out whether
/// adapters reach the model, and whether the same seed gives the same answer alone, among others, and at every
/// endpoint. `io` runs one thread or is a strand. Errors name the endpoint. Adapters are unloaded by settle().
[[nodiscard]] Result<std::unique_ptr<TeacherSource>> make_rollout_servers(boost::asio::any_io_executor io,
                                                                          boost::asio::any_io_executor decode,
                                                                          const RolloutSpec& spec,
                                                                          RolloutServersOptions options);

}  // namespace distilld
