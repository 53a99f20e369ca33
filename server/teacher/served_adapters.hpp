#pragma once

#include <boost/asio/awaitable.hpp>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "server/teacher/generation_queue.hpp"

namespace distilld::teacher {

/// The adapters of a served model, which requests name as their model, and weights in place of the model's. On the
/// queue's executor.
class ServedAdapters {
  public:
    ServedAdapters(GenerationQueue& queue, std::uint32_t max_adapters) : queue_(queue), max_adapters_(max_adapters) {}

    /// Null: there is none of this name.
    [[nodiscard]] std::shared_ptr<models::LoadedAdapter> find(const std::string& name) const;
    [[nodiscard]] std::vector<std::string> names() const;

    /// Loads a PEFT folder, on the compute thread. An error changes nothing: the name is taken, there are too many, or
    /// what the file lacks.
    boost::asio::awaitable<Result<void>> load(std::string name, std::filesystem::path folder);
    /// False: there is none of this name. Answers that use it go on.
    bool unload(const std::string& name);

    /// Weights that answer in place of the model's.
    struct Weights {
        std::shared_ptr<models::LoadedAdapter> model;  ///< null: the model's own
        std::string version;                           ///< as whoever brought them calls them
    };
    [[nodiscard]] const Weights& weights() const noexcept { return weights_; }
    /// Loads a model folder, on the compute thread. An error changes nothing. Answers under way keep their weights.
    boost::asio::awaitable<Result<void>> replace_weights(std::filesystem::path folder, std::string version);

  private:
    GenerationQueue& queue_;
    const std::uint32_t max_adapters_;
    /// Null while it is being loaded.
    std::map<std::string, std::shared_ptr<models::LoadedAdapter>> adapters_;
    Weights weights_;
};

}  // namespace distilld::teacher
