#include "models/serving/network_generator.hpp"

#include <ATen/Parallel.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>
#include <utility>

#include "models/network/causal_lm.hpp"
#include "models/network/kv_cache.hpp"
#include "models/serving/adapted_network.hpp"

namespace distilld::models {

namespace {

/// Pieces of prompts end at multiples of this. Those of the oldest prompts, so many tokens together, and the answering
/// sequences are a step, which takes as long as its tokens.
constexpr std::int64_t kPiece = 256;

SaidToken said(std::span<const float> logprobs, std::int32_t id, std::uint32_t top) {
    SaidToken token{.id = id, .logprob = logprobs[static_cast<std::size_t>(id)]};
    if (top > 0) {
        select_top_k(logprobs, std::min(top, static_cast<std::uint32_t>(logprobs.size())), token.top);
    }
    return token;
}

/// Log-probabilities [n, V] of some rows of a step, one after the other.
class Rows {
  public:
    explicit Rows(std::int64_t vocabulary) : vocabulary_(vocabulary) {}

    void want(std::size_t row) { wanted_.push_back(static_cast<std::int64_t>(row)); }
    /// Of the hidden states [N, H] of all rows, in a product of `least` rows or more.
    void compute(const CausalLm& network, const torch::Tensor& hidden, ProductKind kind, std::int64_t least) {
        if (wanted_.empty()) {
            return;
        }
        const torch::Tensor rows = hidden.index_select(0, torch::tensor(wanted_, torch::kInt64).to(hidden.device()));
        const torch::Tensor all = padded_rows(rows, least);
        const torch::Tensor logits = network.project(all, kind).narrow(0, 0, rows.size(0));
        logprobs_ = torch::log_softmax(logits, -1, torch::kFloat).cpu().contiguous();
    }
    std::span<const float> take() {
        const auto* values = static_cast<const float*>(logprobs_.const_data_ptr());
        return {values + (next_++) * logprobs_.size(1), static_cast<std::size_t>(vocabulary_)};
    }

  private:
    std::int64_t vocabulary_;
    std::vector<std::int64_t> wanted_;
    torch::Tensor logprobs_;
    std::int64_t next_ = 0;
};

/// Rows of prompts, and those that a token is drawn from. A drawn row has the same bits with an echo and without one.
struct StepRows {
    Rows echoed;
    Rows drawn;
};

class AdaptedNetwork final : public LoadedAdapter {
  public:
    explicit AdaptedNetwork(std::unique_ptr<CausalLm> network) : network_(std::move(network)) {}
    [[nodiscard]] CausalLm& network() const { return *network_; }

  private:
    std::unique_ptr<CausalLm> network_;
};

struct Sequence {
    std::uint64_t number;
    GenerationRequest request;
    KvCache cache{};
    std::vector<std::int32_t> answer{};
    std::vector<SaidToken> echoed{};

    [[nodiscard]] std::uint64_t positions() const { return request.prompt.size() + request.max_tokens; }
    [[nodiscard]] std::int64_t prompt_length() const { return static_cast<std::int64_t>(request.prompt.size()); }
    [[nodiscard]] bool answers() const { return cache.length >= prompt_length(); }
    /// Tokens to read in the next step.
    [[nodiscard]] std::int64_t count() const {
        return answers() ? 1 : std::min(kPiece - cache.length % kPiece, prompt_length() - cache.length);
    }
    [[nodiscard]] std::int32_t token(std::int64_t position) const {
        const std::int64_t of_answer = position - prompt_length();
        return of_answer < 0 ? request.prompt[static_cast<std::size_t>(position)]
                             : answer[static_cast<std::size_t>(of_answer)];
    }
    /// Asks for what it needs of its `count` tokens, which begin at row `first` of the step.
    void want(std::size_t first, std::int64_t count, StepRows& rows) const {
        for (std::int64_t i = 0; i < count; ++i) {
            const std::int64_t next = cache.length + i + 1;
            const auto row = first + static_cast<std::size_t>(i);
            if (next < prompt_length()) {
                if (request.echo) {
                    rows.echoed.want(row);
                }
            } else if (request.max_tokens > 0) {
                rows.drawn.want(row);
            }
        }
    }
    /// Takes the rows of its last `count` tokens. Nothing while the prompt is being read.
    std::optional<GenerationStep> go_on(StepRows& rows, std::int64_t count);
};

std::optional<GenerationStep> Sequence::go_on(StepRows& rows, std::int64_t count) {
    // One NaN or infinity among the logits makes the whole row NaN.
    bool finite = true;
    const auto taken = [&finite](Rows& from) {
        const std::span<const float> row = from.take();
        finite = finite && !std::isnan(row.front());
        return row;
    };
    if (request.echo) {
        const std::int64_t end = std::min(cache.length + 1, prompt_length());
        for (std::int64_t next = cache.length - count + 1; next < end; ++next) {
            const std::span<const float> row = taken(rows.echoed);
            if (finite) {
                echoed.push_back(said(row, token(next), request.top_logprobs));
            }
        }
    }
    const bool draws = answers() && request.max_tokens > 0;
    const std::span<const float> last = draws ? taken(rows.drawn) : std::span<const float>();
    if (!finite) {
        return GenerationStep{.sequence = number, .end = GenerationStep::End::not_finite};
    }
    if (!answers()) {
        return std::nullopt;
    }
    GenerationStep news{.sequence = number, .prompt = std::exchange(echoed, {})};
    if (draws) {
        const std::int32_t id = draw_token(last, request.choice, answer.size());
        answer.push_back(id);
        news.token = said(last, id, request.top_logprobs);
        if (std::ranges::find(request.stop_ids, id) != request.stop_ids.end()) {
            news.end = GenerationStep::End::stop;
        }
    }
    if (!news.end && answer.size() >= request.max_tokens) {
        news.end = GenerationStep::End::length;
    }
    return news;
}

class NetworkGenerator final : public Generator {
  public:
    NetworkGenerator(CausalLm& network, const GeneratorLimits& limits) : network_(network), limits_(limits) {}

    [[nodiscard]] const GeneratorLimits& limits() const override { return limits_; }
    [[nodiscard]] bool has_room(const GenerationRequest& request) const override;
    std::uint64_t add(GenerationRequest request) override;
    void remove(std::uint64_t sequence) override;
    [[nodiscard]] bool idle() const override { return sequences_.empty(); }
    [[nodiscard]] std::vector<GenerationStep> step() override;
    Result<std::shared_ptr<LoadedAdapter>> load_adapter(const std::filesystem::path& folder) override;
    Result<std::shared_ptr<LoadedAdapter>> load_model(const std::filesystem::path& folder) override;

  private:
    [[nodiscard]] std::vector<Sequence*> chosen() const;
    [[nodiscard]] CausalLm& network_of(const Sequence& sequence) const;
    /// Reads on in prompts, or in answers, of one network, and adds their news.
    void read_on(CausalLm& network, const std::vector<Sequence*>& reading, std::vector<GenerationStep>& steps) const;

    CausalLm& network_;
    const GeneratorLimits limits_;
    std::vector<std::unique_ptr<Sequence>> sequences_;  ///< oldest first
    std::uint64_t next_ = 0;
};

bool NetworkGenerator::has_room(const GenerationRequest& request) const {
    std::uint64_t held = request.prompt.size() + request.max_tokens;
    for (const auto& sequence : sequences_) {
        held += sequence->positions();
    }
    return sequences_.size() < limits_.max_sequences && held <= limits_.max_positions;
}

std::uint64_t NetworkGenerator::add(GenerationRequest request) {
    sequences_.push_back(std::make_unique<Sequence>(Sequence{next_, std::move(request)}));
    return next_++;
}

void NetworkGenerator::remove(std::uint64_t sequence) {
    std::erase_if(sequences_, [sequence](const auto& one) { return one->number == sequence; });
}

std::vector<Sequence*> NetworkGenerator::chosen() const {
    std::vector<Sequence*> chosen;
    std::int64_t of_prompts = 0;
    bool full = false;
    for (const auto& sequence : sequences_) {
        if (sequence->answers()) {
            chosen.push_back(sequence.get());
            continue;
        }
        full = full || (of_prompts > 0 && of_prompts + sequence->count() > kPiece);
        if (!full) {
            of_prompts += sequence->count();
            chosen.push_back(sequence.get());
        }
    }
    return chosen;
}

CausalLm& NetworkGenerator::network_of(const Sequence& sequence) const {
    const auto* adapted = static_cast<const AdaptedNetwork*>(sequence.request.adapter.get());
    return adapted != nullptr ? adapted->network() : network_;
}

std::vector<GenerationStep> NetworkGenerator::step() {
    std::vector<GenerationStep> steps;
    std::vector<Sequence*> left = chosen();
    const bool on_cpu = network_.device().is_cpu();
    while (!left.empty()) {
        // Prompts and answers apart: the kind of a product decides its bits. Off the CPU, a piece of a prompt is alone.
        const Sequence& first = *left.front();
        const auto others = std::stable_partition(left.begin(), left.end(), [&](const Sequence* sequence) {
            return sequence == &first || (&network_of(*sequence) == &network_of(first) &&
                                          sequence->answers() == first.answers() && (on_cpu || first.answers()));
        });
        read_on(network_of(first), {left.begin(), others}, steps);
        left.erase(left.begin(), others);
    }
    for (const GenerationStep& news : steps) {
        if (news.end) {
            remove(news.sequence);
        }
    }
    return steps;
}

Result<std::shared_ptr<LoadedAdapter>> NetworkGenerator::load_adapter(const std::filesystem::path& folder) {
    auto network = adapt_network(network_, folder);
    if (!network) {
        return network.error();
    }
    return std::make_shared<AdaptedNetwork>(std::move(*network));
}

Result<std::shared_ptr<LoadedAdapter>> NetworkGenerator::load_model(const std::filesystem::path& folder) {
    auto network =
        open_causal_lm(folder, network_.dtype(), {network_.device()}, model_families(), WeightUse::inference);
    if (!network) {
        return network.error();
    }
    const auto differs = [&folder](const char* what, std::int64_t theirs, std::int64_t ours) {
        return invalid_input(folder.string() + " has " + std::to_string(theirs) + " " + what +
                             ", and the model that is served " + std::to_string(ours));
    };
    if ((*network)->vocabulary_size() != network_.vocabulary_size()) {
        return differs("tokens", (*network)->vocabulary_size(), network_.vocabulary_size());
    }
    if ((*network)->max_positions() != network_.max_positions()) {
        return differs("positions", (*network)->max_positions(), network_.max_positions());
    }
    return std::make_shared<AdaptedNetwork>(std::move(*network));
}

void NetworkGenerator::read_on(CausalLm& network, const std::vector<Sequence*>& reading,
                               std::vector<GenerationStep>& steps) const {
    const torch::NoGradGuard no_grad;
    const bool answer = reading.front()->answers();
    const bool on_cpu = network.device().is_cpu();
    std::vector<std::int64_t> ids;
    std::vector<Extension> extended;
    StepRows rows{Rows(network.vocabulary_size()), Rows(network.vocabulary_size())};
    for (Sequence* sequence : reading) {
        const std::int64_t count = sequence->count();
        sequence->want(ids.size(), count, rows);
        for (std::int64_t i = 0; i < count; ++i) {
            ids.push_back(sequence->token(sequence->cache.length + i));
        }
        extended.push_back({&sequence->cache, count});
    }
    // Off the CPU, all steps of answers have equally many rows.
    const std::int64_t least =
        answer ? (on_cpu ? 1 : static_cast<std::int64_t>(limits_.max_sequences)) : least_rows(network.device());
    ids.resize(std::max(ids.size(), static_cast<std::size_t>(least)), 0);
    const torch::Tensor hidden = network.extend(torch::tensor(ids, torch::kInt64).to(network.device()), extended,
                                                answer ? ProductKind::few_rows : ProductKind::library);
    rows.echoed.compute(network, hidden, ProductKind::library, least_rows(network.device()));
    rows.drawn.compute(network, hidden, ProductKind::few_rows, answer ? least : 1);
    for (std::size_t i = 0; i < reading.size(); ++i) {
        if (auto news = reading[i]->go_on(rows, extended[i].count)) {
            steps.push_back(std::move(*news));
        }
    }
}

}  // namespace

std::unique_ptr<Generator> make_generator(CausalLm& network, const GeneratorLimits& limits) {
    return std::make_unique<NetworkGenerator>(network, limits);
}

}  // namespace distilld::models
