#include "models/serving/teacher_engine.hpp"

#include <ATen/Parallel.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <utility>

#include "models/families/adapter_config.hpp"
#include "models/families/config_json.hpp"
#include "models/kernels/parallel.hpp"
#include "models/network/causal_lm.hpp"
#include "models/network/device.hpp"
#include "models/serving/adapted_network.hpp"
#include "models/serving/make_served_head.hpp"
#include "models/serving/network_generator.hpp"
#include "models/serving/top_rows.hpp"
#include "pipeline/data/tokenizer/tokenizer_hash.hpp"

namespace distilld::models {

namespace {

/// Elements of the logits that one product with the head gives (128 MiB in fp32). Each product reads the whole head, so
/// it wants many rows; a bound keeps memory from growing with B · T.
constexpr std::int64_t kChunkElements = std::int64_t{1} << 25;

/// Elements of logits that are reduced at once, near the caches (16 MiB in fp32).
constexpr std::int64_t kBlockElements = std::int64_t{1} << 22;

/// Smallest mass that the complement of an fp32 sum can distinguish from 0.
constexpr double kMinTail = 1e-7;

Error not_finite() {
    return {ErrorKind::internal, "the model's logits are not finite; are its weights damaged?"};
}

class TeacherEngine final : public TeacherScorer {
  public:
    TeacherEngine(std::unique_ptr<CausalLm> network, ServedModel model, const GeneratorLimits* generation)
        : network_(std::move(network)),
          model_(std::move(model)),
          generator_(generation != nullptr ? make_generator(*network_, *generation) : nullptr) {}

    [[nodiscard]] const ServedModel& model() const override { return model_; }
    [[nodiscard]] Generator* generator() override { return generator_.get(); }

    Result<ScoreResult> score(const ScoreRequest& request) override {
        if (auto checked = check_score_request(request, model_); !checked) {
            return checked.error();
        }
        const torch::NoGradGuard no_grad;
        const auto columns = static_cast<std::int64_t>(request.columns);
        const std::int64_t positions = request.rows * columns;
        const std::int64_t rows = (std::max(positions, least_rows(network_->device())) + columns - 1) / columns;
        std::vector<std::int64_t> ids = padded_ids(request);
        ids.resize(static_cast<std::size_t>(rows * columns), 0);
        const torch::Tensor input = torch::from_blob(const_cast<std::int64_t*>(ids.data()), {rows, columns},
                                                     torch::kInt64)  // NOLINT: read only
                                        .to(network_->device());
        const torch::Tensor hidden =  // on the last device
            network_->forward(input).narrow(0, 0, request.rows).reshape({positions, -1});

        ScoreResult result;
        allocate(request, result);
        if (request.mode == ScoreRequest::Mode::hidden) {
            if (auto added = add_hidden(request, hidden, result); !added) {
                return added.error();
            }
            if (!request.token_logprobs) {
                return result;
            }
        }
        const auto vocabulary = static_cast<std::int64_t>(model_.vocabulary_size);
        const std::int64_t chunk = std::max<std::int64_t>(1, kChunkElements / vocabulary);
        // Off the CPU, each block costs launches.
        const std::int64_t block = hidden.is_cpu() ? std::max<std::int64_t>(1, kBlockElements / vocabulary) : chunk;
        const std::vector<std::int64_t> wanted = wanted_positions(request);
        const auto all = static_cast<std::int64_t>(wanted.size());
        for (std::int64_t begin = 0; begin < all; begin += chunk) {
            const std::int64_t count = std::min(chunk, all - begin);
            const std::span numbers(wanted.data() + begin, static_cast<std::size_t>(count));
            const torch::Tensor logits = project(rows_of(hidden, numbers));
            for (std::int64_t row = 0; row < count; row += block) {
                const std::int64_t size = std::min(block, count - row);
                const auto part = numbers.subspan(static_cast<std::size_t>(row), static_cast<std::size_t>(size));
                if (auto added = add_block(request, ids, part, logits.narrow(0, row, size), result); !added) {
                    return added.error();
                }
            }
        }
        return result;
    }

  private:
    [[nodiscard]] torch::Tensor project(const torch::Tensor& hidden) const {
        return network_->project(padded_rows(hidden, least_rows(network_->device()))).narrow(0, 0, hidden.size(0));
    }

    /// The network's input ids, with 0 in the padding, so that the answer does not depend on the client's padding.
    static std::vector<std::int64_t> padded_ids(const ScoreRequest& request) {
        std::vector<std::int64_t> ids(request.input_ids.begin(), request.input_ids.end());
        for (std::size_t row = 0; row < request.lengths.size(); ++row) {
            const auto begin = ids.begin() + static_cast<std::ptrdiff_t>(row * request.columns);
            std::fill(begin + request.lengths[row], begin + request.columns, 0);
        }
        return ids;
    }

    /// The positions before the end of their sequence, in order. The others' results stay 0.
    static std::vector<std::int64_t> wanted_positions(const ScoreRequest& request) {
        std::vector<std::int64_t> wanted;
        wanted.reserve(std::size_t{request.rows} * request.columns);
        for (std::int64_t row = 0; row < request.rows; ++row) {
            const std::int64_t length =
                request.lengths.empty() ? request.columns : request.lengths[static_cast<std::size_t>(row)];
            for (std::int64_t column = 0; column < length; ++column) {
                wanted.push_back(row * request.columns + column);
            }
        }
        return wanted;
    }

    /// Shares memory if they follow each other.
    static torch::Tensor rows_of(const torch::Tensor& hidden, std::span<const std::int64_t> numbers) {
        const auto count = static_cast<std::int64_t>(numbers.size());
        if (numbers.back() - numbers.front() + 1 == count) {
            return hidden.narrow(0, numbers.front(), count);
        }
        const torch::Tensor index = torch::empty({count}, torch::kInt64);
        std::ranges::copy(numbers, index.mutable_data_ptr<std::int64_t>());
        return hidden.index_select(0, index.to(hidden.device()));
    }

    void allocate(const ScoreRequest& request, ScoreResult& result) const {
        const std::size_t positions = std::size_t{request.rows} * request.columns;
        if (request.mode == ScoreRequest::Mode::topk) {
            result.topk_ids.resize(positions * request.top_k);
            result.topk_logprobs.resize(positions * request.top_k);
            result.tail_logprob.resize(positions);
        } else if (request.mode == ScoreRequest::Mode::hidden) {
            const std::size_t numbers = positions * model_.hidden_size;
            const bool wide = request.hidden_type == ScoreRequest::HiddenType::f32;
            result.hidden_half.resize(wide ? 0 : numbers);
            result.hidden_f32.resize(wide ? numbers : 0);
        } else if (request.logits_type == ScoreRequest::LogitsType::f16) {
            result.logits_f16.resize(positions * model_.vocabulary_size);
        } else {
            result.logits_f32.resize(positions * model_.vocabulary_size);
        }
        if (request.token_logprobs) {
            result.token_logprobs.resize(positions);
        }
    }

    /// Reduces the logits [n, V] of n positions into `result`.
    Result<void> add_block(const ScoreRequest& request, const std::vector<std::int64_t>& ids,
                           std::span<const std::int64_t> positions, const torch::Tensor& logits,
                           ScoreResult& result) const {
        if (request.mode == ScoreRequest::Mode::logits) {
            if (auto added = add_logits(request, positions, logits, result); !added) {
                return added;
            }
            if (!request.token_logprobs) {
                return {};
            }
        }
        const torch::Tensor logprobs = torch::log_softmax(logits, -1, torch::kFloat);
        // One NaN or infinity among the logits makes the whole row NaN.
        if (logprobs.select(1, 0).isnan().any().item<bool>()) {
            return not_finite();
        }
        if (request.token_logprobs) {
            add_token_logprobs(request, ids, positions, logprobs, result);
        }
        if (request.mode == ScoreRequest::Mode::topk) {
            const auto vocabulary = static_cast<std::int64_t>(model_.vocabulary_size);
            const TopRows rows(logprobs.narrow(1, 0, vocabulary), request.top_k);
            kernels::in_parallel(logprobs.size(0), 1, [&](std::int64_t begin, std::int64_t end) {
                std::vector<TopEntry> best;
                for (std::int64_t row = begin; row < end; ++row) {
                    rows.select(row, best);
                    add_top_k(static_cast<std::size_t>(positions[static_cast<std::size_t>(row)]), best, result);
                }
            });
        }
        return {};
    }

    Result<void> add_logits(const ScoreRequest& request, std::span<const std::int64_t> positions,
                            const torch::Tensor& logits, ScoreResult& result) const {
        const torch::Tensor wide = logits.to(torch::kFloat).cpu().contiguous();
        if (!torch::isfinite(wide).all().item<bool>()) {
            return not_finite();
        }
        const auto copy_rows = [&](const torch::Tensor& values, auto* out) {
            const std::size_t size = model_.vocabulary_size;
            const auto* from = static_cast<const std::byte*>(values.const_data_ptr());
            for (const std::int64_t position : positions) {
                std::memcpy(out + static_cast<std::size_t>(position) * size, from, size * sizeof(*out));
                from += size * sizeof(*out);
            }
        };
        if (request.logits_type == ScoreRequest::LogitsType::f32) {
            copy_rows(wide, result.logits_f32.data());
            return {};
        }
        constexpr double kMaxHalf = 65504.0;
        copy_rows(wide.clamp(-kMaxHalf, kMaxHalf).to(torch::kHalf), result.logits_f16.data());
        return {};
    }

    /// The hidden states [n, H] of all positions.
    static Result<void> add_hidden(const ScoreRequest& request, const torch::Tensor& hidden, ScoreResult& result) {
        if (!torch::isfinite(hidden).all().item<bool>()) {
            return Error{ErrorKind::internal, "the model's hidden states are not finite; are its weights damaged?"};
        }
        if (request.hidden_type == ScoreRequest::HiddenType::f32) {
            const torch::Tensor wide = hidden.to(torch::kFloat).cpu().contiguous();
            std::memcpy(result.hidden_f32.data(), wide.const_data_ptr(), wide.nbytes());
            return {};
        }
        const bool ieee = request.hidden_type == ScoreRequest::HiddenType::f16;
        const torch::Tensor half = hidden.to(ieee ? torch::kHalf : torch::kBFloat16).cpu().contiguous();
        if (ieee && !torch::isfinite(half).all().item<bool>()) {
            return invalid_input(
                "hidden_states holds values beyond 65504, which FP16 cannot: ask for hidden_dtype FP32");
        }
        std::memcpy(result.hidden_half.data(), half.const_data_ptr(), half.nbytes());
        return {};
    }

    void add_top_k(std::size_t position, const std::vector<TopEntry>& best, ScoreResult& result) const {
        const std::size_t k = best.size();
        double mass = 0.0;
        const std::size_t offset = position * k;
        for (std::size_t place = 0; place < k; ++place) {
            const TopEntry entry = best[place];
            result.topk_ids[offset + place] = entry.id;
            result.topk_logprobs[offset + place] = c10::Half(std::max(entry.value, -65504.0F)).x;
            mass += std::exp(static_cast<double>(entry.value));
        }
        const double rest = 1.0 - mass;
        result.tail_logprob[position] =
            k == model_.vocabulary_size || rest < kMinTail ? kTailFloor : static_cast<float>(std::log(rest));
    }

    /// 0 at the last position of a sequence.
    static void add_token_logprobs(const ScoreRequest& request, const std::vector<std::int64_t>& ids,
                                   std::span<const std::int64_t> positions, const torch::Tensor& logprobs,
                                   ScoreResult& result) {
        const auto next_id = [&](std::size_t position) {
            const std::size_t row = position / request.columns;
            const std::size_t length =
                request.lengths.empty() ? request.columns : static_cast<std::size_t>(request.lengths[row]);
            return position % request.columns + 1 < length ? ids[position + 1] : -1;
        };
        std::vector<std::int64_t> next;
        for (const std::int64_t position : positions) {
            next.push_back(next_id(static_cast<std::size_t>(position)));
        }
        const torch::Tensor column = torch::tensor(next, torch::kInt64).clamp_min_(0).unsqueeze(1);
        const torch::Tensor picked = logprobs.gather(1, column.to(logprobs.device())).cpu().contiguous();
        const auto* values = static_cast<const float*>(picked.const_data_ptr());
        for (std::size_t i = 0; i < next.size(); ++i) {
            result.token_logprobs[static_cast<std::size_t>(positions[i])] = next[i] < 0 ? 0.0F : values[i];
        }
    }

    std::unique_ptr<CausalLm> network_;
    ServedModel model_;
    std::unique_ptr<Generator> generator_;
};

/// A run resolves "auto" for the same devices before it loads a teacher: server/worker/machine/arithmetic.cpp.
Result<std::vector<torch::Device>> devices_of(const TeacherEngineOptions& options) {
    std::vector<torch::Device> devices;
    switch (options.placement) {
        case TeacherPlacement::rank0:
        case TeacherPlacement::duplicated: {
            const Result<torch::Device> device = resolve_device(options.device);
            if (!device) {
                return device.error();
            }
            devices.push_back(*device);
            break;
        }
        case TeacherPlacement::balanced:
            for (int index = 0; index < cuda_devices().count; ++index) {
                devices.emplace_back(torch::kCUDA, static_cast<c10::DeviceIndex>(index));
            }
            break;
        case TeacherPlacement::cpu:
        case TeacherPlacement::shared:
            break;
    }
    if (devices.empty()) {
        devices.emplace_back(torch::kCPU);
    }
    return devices;
}

bool holds_adapter_alone(const std::filesystem::path& folder) {
    std::error_code ignored;
    return is_adapter_folder(folder) && !std::filesystem::exists(folder / "config.json", ignored);
}

/// The model of the folder; that of a PEFT folder is its base with the adapter.
Result<std::unique_ptr<CausalLm>> open_network(const std::filesystem::path& folder, const TeacherEngineOptions& options,
                                               const std::vector<torch::Device>& devices) {
    const bool shared = options.placement == TeacherPlacement::shared;
    const WeightUse use = shared ? WeightUse::mapped : WeightUse::inference;
    const auto dtype = resolve_dtype(options.dtype, devices.front());
    if (!holds_adapter_alone(folder)) {
        return open_causal_lm(folder, dtype, devices, model_families(), use);
    }
    if (devices.size() > 1) {
        return invalid_input(folder.string() +
                             " holds an adapter (adapter_config.json), which one device takes: merge it into its base "
                             "model (/student/lora/merge true writes a merged model; or merge_and_unload() of peft)");
    }
    const Result<AdapterConfig> config = read_adapter_config(folder);
    const auto base_folder = config ? base_of_adapter(folder, *config) : config.error();
    if (!base_folder) {
        return base_folder.error();
    }
    const auto base = open_causal_lm(*base_folder, dtype, devices, model_families(), use);
    return base ? adapt_network(**base, folder) : base.error();
}

std::string text_of(const std::vector<torch::Device>& devices, bool shared) {
    if (devices.size() > 1) {
        return std::to_string(devices.size()) + " CUDA devices";
    }
    return std::string(devices.front().is_cuda() ? "cuda" : "cpu") + (shared ? ", weights shared" : "");
}

}  // namespace

Result<std::unique_ptr<TeacherScorer>> load_teacher_engine(const std::filesystem::path& folder,
                                                           const TeacherEngineOptions& options) {
    if (options.threads != 0) {
        at::set_num_threads(static_cast<int>(options.threads));
    }
    const Result<std::vector<torch::Device>> devices = devices_of(options);
    if (!devices) {
        return devices.error();
    }
    Result<std::unique_ptr<CausalLm>> network = open_network(folder, options, *devices);
    if (!network) {
        return network.error();
    }
    ServedModel model;
    model.vocabulary_size = static_cast<std::uint32_t>((*network)->vocabulary_size());
    model.max_positions = static_cast<std::uint32_t>(
        std::min<std::int64_t>((*network)->max_positions(), std::numeric_limits<std::int32_t>::max()));
    model.parameters = parameter_count((*network)->groups());
    model.dtype = to_string((*network)->dtype());
    model.device = text_of(*devices, options.placement == TeacherPlacement::shared);
    model.threads = static_cast<std::uint32_t>(at::get_num_threads());
    model.hidden_size = static_cast<std::uint32_t>((*network)->config().decoder.hidden_size);
    model.hidden_type =
        (*network)->dtype() == ComputeDtype::bf16 ? ScoreRequest::HiddenType::bf16 : ScoreRequest::HiddenType::f16;
    if (options.with_head) {
        model.head = make_served_head((*network)->head_weight());
    }
    model.warnings = (*network)->config().warnings;
    const Result<std::string> tokenizer = tokenizer_hash_of(folder);
    if (tokenizer) {
        model.tokenizer_hash = *tokenizer;
    } else {
        model.warnings.push_back(tokenizer.error().message + ": students cannot compare tokenizers");
    }
    model.end_ids = end_token_ids((*network)->config());
    return std::make_unique<TeacherEngine>(std::move(*network), std::move(model),
                                           devices->size() == 1 ? &options.generation : nullptr);
}

Result<std::unique_ptr<TeacherScorer>> load_teacher_engine(const std::filesystem::path& folder, Dtype dtype,
                                                           std::uint32_t threads) {
    TeacherEngineOptions options;
    options.dtype = dtype;
    options.threads = threads;
    return load_teacher_engine(folder, options);
}

}  // namespace distilld::models
