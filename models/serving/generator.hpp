#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "models/serving/token_choice.hpp"
#include "models/serving/top_k.hpp"

/// Generation in plain types: the HTTP side includes this without libtorch.
namespace distilld::models {

/// An adapter that a generator has loaded. Whoever holds it keeps its memory.
class LoadedAdapter {
  public:
    LoadedAdapter() = default;
    LoadedAdapter(const LoadedAdapter&) = delete;
    LoadedAdapter& operator=(const LoadedAdapter&) = delete;
    virtual ~LoadedAdapter() = default;
};

/// A prompt and what is wanted behind it.
struct GenerationRequest {
    std::vector<std::int32_t> prompt;
    std::uint32_t max_tokens = 16;  ///< 0: only the prompt is read, with echo
    TokenChoice choice{};
    std::vector<std::int32_t> stop_ids{};      ///< end the answer, which holds them
    std::uint32_t top_logprobs = 0;            ///< the likeliest tokens to name at each position
    bool echo = false;                         ///< also the log-probabilities of the prompt's tokens
    std::shared_ptr<LoadedAdapter> adapter{};  ///< of the same generator; null: the model itself
};

/// A token, with what the model said about it at temperature 1.
struct SaidToken {
    std::int32_t id = 0;
    float logprob = 0;
    std::vector<TopEntry> top{};  ///< the likeliest, as log-probabilities
};

/// News of a sequence.
struct GenerationStep {
    enum class End { stop, length, not_finite };  ///< not_finite: no token can be drawn
    std::uint64_t sequence = 0;
    std::vector<SaidToken> prompt{};  ///< with echo, when the prompt has been read: its tokens from the second on
    std::optional<SaidToken> token{};
    std::optional<End> end{};  ///< the sequence is gone
};

struct GeneratorLimits {
    std::uint32_t max_sequences = 16;
    std::uint64_t max_positions = 65'536;  ///< of all sequences, at their full lengths
};

/// Answers prompts with several sequences under way. Each step reads on in all of them: one token each of those that
/// answer, and pieces of the prompts of the oldest that do not. No bit of an answer depends on the other sequences
/// (docs/decisions/0003). One thread at a time.
class Generator {
  public:
    virtual ~Generator() = default;

    [[nodiscard]] virtual const GeneratorLimits& limits() const = 0;
    /// Whether there is room for this one beside the others.
    [[nodiscard]] virtual bool has_room(const GenerationRequest& request) const = 0;
    /// Begins with a checked request (check_generation_request()) that there is room for. Returns the sequence's
    /// number.
    virtual std::uint64_t add(GenerationRequest request) = 0;
    /// Drops a sequence; none if it has ended.
    virtual void remove(std::uint64_t sequence) = 0;
    [[nodiscard]] virtual bool idle() const = 0;

    /// Empty if idle.
    [[nodiscard]] virtual std::vector<GenerationStep> step() = 0;

    /// The adapter of a PEFT folder, which the model's weights are shared with. Errors name the file and the field or
    /// tensor.
    virtual Result<std::shared_ptr<LoadedAdapter>> load_adapter(const std::filesystem::path& folder) = 0;
    /// A model folder with other weights and the same vocabulary, to be used in the model's place. Errors name the
    /// file.
    virtual Result<std::shared_ptr<LoadedAdapter>> load_model(const std::filesystem::path& folder) = 0;
};

/// Checks ids and lengths against the model and the generator. The message names the field of the API.
inline Result<void> check_generation_request(const GenerationRequest& request, std::uint32_t vocabulary,
                                             std::uint32_t max_positions, const GeneratorLimits& limits) {
    if (request.prompt.empty()) {
        return invalid_input("prompt is empty: it needs at least one token");
    }
    for (std::size_t i = 0; i < request.prompt.size(); ++i) {
        const std::int32_t id = request.prompt[i];
        if (id < 0 || static_cast<std::uint32_t>(id) >= vocabulary) {
            return invalid_input("prompt[" + std::to_string(i) + "] is " + std::to_string(id) +
                                 ": the vocabulary has " + std::to_string(vocabulary) + " tokens");
        }
    }
    const std::uint64_t positions = request.prompt.size() + std::uint64_t{request.max_tokens};
    const bool by_model = max_positions < limits.max_positions;
    const std::uint64_t most = by_model ? max_positions : limits.max_positions;
    if (positions > most) {
        return invalid_input("prompt has " + std::to_string(request.prompt.size()) + " tokens and max_tokens is " +
                             std::to_string(request.max_tokens) +
                             (by_model ? ": the model takes " : ": the server holds ") + std::to_string(most) +
                             " positions at most" +
                             (by_model ? " (max_position_embeddings)" : " (--max-cached-tokens)"));
    }
    return {};
}

}  // namespace distilld::models
