#include "models/network/llama_network.hpp"

#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>
#include <fstream>
#include <map>
#include <numbers>
#include <set>
#include <sstream>
#include <tuple>

#include "base/files.hpp"
#include "models/weights/safetensors.hpp"

namespace distilld::models {
namespace {

namespace json = boost::json;

constexpr std::uint64_t kIndexSizeLimit = std::uint64_t{100} << 20;
constexpr const char* kEmbeddingName = "model.embed_tokens.weight";
constexpr const char* kHeadName = "lm_head.weight";

std::string text_of(at::IntArrayRef sizes) {
    std::ostringstream out;
    out << sizes;
    return out.str();
}

/// A parameter before it has memory.
struct ParameterShape {
    std::string name;
    std::vector<std::int64_t> shape;
};

/// Appends "prefix.weight" [out, in] and, with `bias`, "prefix.bias" [out].
void add_linear(std::vector<ParameterShape>& list, const std::string& prefix, std::int64_t out, std::int64_t in,
                bool bias) {
    list.push_back({prefix + ".weight", {out, in}});
    if (bias) {
        list.push_back({prefix + ".bias", {out}});
    }
}

std::vector<ParameterShape> layer_shapes(const LlamaConfig& config, std::int64_t layer) {
    const std::string prefix = "model.layers." + std::to_string(layer) + ".";
    const auto hidden = config.hidden_size;
    const auto queries = config.num_attention_heads * config.head_dim;
    const auto keys = config.num_key_value_heads * config.head_dim;
    std::vector<ParameterShape> list;
    list.push_back({prefix + "input_layernorm.weight", {hidden}});
    add_linear(list, prefix + "self_attn.q_proj", queries, hidden, config.attention_bias);
    add_linear(list, prefix + "self_attn.k_proj", keys, hidden, config.attention_bias);
    add_linear(list, prefix + "self_attn.v_proj", keys, hidden, config.attention_bias);
    add_linear(list, prefix + "self_attn.o_proj", hidden, queries, config.attention_bias);
    list.push_back({prefix + "post_attention_layernorm.weight", {hidden}});
    add_linear(list, prefix + "mlp.gate_proj", config.intermediate_size, hidden, config.mlp_bias);
    add_linear(list, prefix + "mlp.up_proj", config.intermediate_size, hidden, config.mlp_bias);
    add_linear(list, prefix + "mlp.down_proj", hidden, config.intermediate_size, config.mlp_bias);
    return list;
}

/// Every parameter, group by group in forward order.
std::vector<std::pair<std::string, std::vector<ParameterShape>>> all_shapes(const LlamaConfig& config) {
    std::vector<std::pair<std::string, std::vector<ParameterShape>>> groups;
    groups.push_back({"embedding", {{kEmbeddingName, {config.vocab_size, config.hidden_size}}}});
    for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
        groups.push_back({"layers." + std::to_string(layer), layer_shapes(config, layer)});
    }
    std::vector<ParameterShape> head{{"model.norm.weight", {config.hidden_size}}};
    if (!config.tie_word_embeddings) {
        head.push_back({kHeadName, {config.vocab_size, config.hidden_size}});
    }
    groups.push_back({"head", std::move(head)});
    return groups;
}

/// Buffers that old versions of transformers saved and whose values follow from the configuration.
bool is_ignorable(const std::string& name, const LlamaConfig& config) {
    return name.ends_with("rotary_emb.inv_freq") || (name == kHeadName && config.tie_word_embeddings);
}

/// The file or files that hold a model's tensors.
struct WeightFiles {
    std::vector<SafetensorsFile> files;
    std::map<std::string, std::size_t> file_of;  ///< tensor name -> index in files
};

Result<WeightFiles> open_sharded(const std::filesystem::path& folder, const std::filesystem::path& index) {
    auto text = read_text_file(index, kIndexSizeLimit);
    if (!text) {
        return text.error();
    }
    boost::system::error_code code;
    const auto parsed = json::parse(*text, code);
    if (code) {
        return invalid_input(index.string() + ": not JSON (" + code.message() + ")");
    }
    const auto* object = parsed.if_object();
    const auto* map = object == nullptr ? nullptr : object->if_contains("weight_map");
    if (map == nullptr || !map->is_object()) {
        return invalid_input(index.string() + ": has no weight_map object");
    }
    WeightFiles weights;
    std::map<std::string, std::size_t> opened;
    for (const auto& [key, value] : map->get_object()) {
        const std::string name(key);
        if (!value.is_string()) {
            return invalid_input(index.string() + ": weight_map." + name + " is not a file name");
        }
        const std::string file_name(value.get_string());
        // A shard lies beside its index: anything with a folder in it could point outside.
        if (file_name.empty() || file_name == "." || file_name == ".." ||
            file_name.find_first_of(std::string_view("/\\\0", 3)) != std::string::npos) {
            return invalid_input(index.string() + ": weight_map." + name + " is " + json::serialize(value) +
                                 ", a file name without a folder is expected");
        }
        auto found = opened.find(file_name);
        if (found == opened.end()) {
            auto file = SafetensorsFile::open(folder / file_name);
            if (!file) {
                return file.error();
            }
            found = opened.emplace(file_name, weights.files.size()).first;
            weights.files.push_back(std::move(*file));
        }
        if (!weights.files[found->second].contains(name)) {
            return invalid_input(index.string() + ": tensor " + name + " is not in " + file_name);
        }
        weights.file_of.emplace(name, found->second);
    }
    for (const auto& file : weights.files) {
        for (const auto& name : file.names()) {
            if (!weights.file_of.contains(name)) {
                return invalid_input(file.path().string() + ": tensor " + name + " is not in the weight_map of " +
                                     index.string());
            }
        }
    }
    return weights;
}

Result<WeightFiles> open_weights(const std::filesystem::path& folder) {
    std::error_code ignored;
    const auto single = folder / "model.safetensors";
    const auto index = folder / "model.safetensors.index.json";
    if (std::filesystem::exists(single, ignored)) {
        auto file = SafetensorsFile::open(single);
        if (!file) {
            return file.error();
        }
        WeightFiles weights;
        for (auto& name : file->names()) {
            weights.file_of.emplace(std::move(name), 0);
        }
        weights.files.push_back(std::move(*file));
        return weights;
    }
    if (std::filesystem::exists(index, ignored)) {
        return open_sharded(folder, index);
    }
    return invalid_input(folder.string() + ": has neither model.safetensors nor model.safetensors.index.json");
}

/// Everything about the tensors but their values.
Result<void> check_weights(const std::filesystem::path& folder, const WeightFiles& weights, const LlamaConfig& config) {
    std::set<std::string> expected;
    for (const auto& [group, parameters] : all_shapes(config)) {
        for (const auto& parameter : parameters) {
            expected.insert(parameter.name);
            const auto found = weights.file_of.find(parameter.name);
            if (found == weights.file_of.end()) {
                return invalid_input(folder.string() + ": tensor " + parameter.name + " is missing");
            }
            const auto& file = weights.files[found->second];
            const auto* entry = file.find(parameter.name);
            if (entry->shape != parameter.shape) {
                return invalid_input(file.path().string() + ": tensor " + parameter.name + " has shape " +
                                     text_of(entry->shape) + ", the configuration asks for " +
                                     text_of(parameter.shape));
            }
            switch (entry->dtype) {
                case torch::kFloat:
                case torch::kHalf:
                case torch::kBFloat16:
                    break;
                default:
                    return invalid_input(file.path().string() + ": tensor " + parameter.name + " has dtype " +
                                         c10::toString(entry->dtype) + "; F32, F16 or BF16 is expected");
            }
        }
    }
    std::string unexpected;
    std::size_t count = 0;
    for (const auto& [name, file] : weights.file_of) {
        if (!expected.contains(name) && !is_ignorable(name, config)) {
            unexpected += count < 5 ? (count == 0 ? "" : ", ") + name : "";
            ++count;
        }
    }
    if (count > 0) {
        return invalid_input(folder.string() + ": " + std::to_string(count) +
                             " tensors do not belong to this Llama network: " + unexpected + (count > 5 ? ", …" : ""));
    }
    return {};
}

/// 1 / wavelength for each pair of dimensions, as transformers computes it: fp32 throughout.
torch::Tensor inverse_frequencies(const LlamaConfig& config) {
    const auto steps =
        torch::arange(0, config.head_dim, 2, torch::kInt64).to(torch::kFloat) / static_cast<double>(config.head_dim);
    const auto plain = torch::reciprocal(torch::pow(torch::Scalar(config.rope_theta), steps));
    if (!config.rope_scaling) {
        return plain;
    }
    // Llama 3.1: long wavelengths are stretched by `factor`, short ones kept, those between interpolated.
    const auto& scaling = *config.rope_scaling;
    const auto old_length = static_cast<double>(scaling.original_max_position_embeddings);
    const double low_wavelength = old_length / scaling.low_freq_factor;
    const double high_wavelength = old_length / scaling.high_freq_factor;
    const auto wavelength = (2.0 * std::numbers::pi) / plain;
    const auto stretched = torch::where(wavelength > low_wavelength, plain / scaling.factor, plain);
    const auto smooth =
        (old_length / wavelength - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor);
    const auto smoothed = (1 - smooth) * stretched / scaling.factor + smooth * stretched;
    const auto between = torch::logical_and(wavelength >= high_wavelength, wavelength <= low_wavelength);
    return torch::where(between, smoothed, stretched);
}

/// Rotates pairs (i, i + D/2) of `input` [B, heads, T, D]; the same arithmetic as x·cos + rotate_half(x)·sin.
torch::Tensor rotate(const torch::Tensor& input, const torch::Tensor& cos, const torch::Tensor& sin) {
    const auto halves = input.chunk(2, -1);
    const auto& first = halves[0];
    const auto& second = halves[1];
    return torch::cat({first * cos - second * sin, second * cos + first * sin}, -1);
}

const char* dtype_name(torch::ScalarType type) {
    switch (type) {
        case torch::kBFloat16:
            return "bfloat16";
        case torch::kHalf:
            return "float16";
        default:
            return "float32";
    }
}

bool cpu_has_amx_bf16() {
    std::ifstream info("/proc/cpuinfo");
    for (std::string line; std::getline(info, line);) {
        if (line.starts_with("flags")) {
            line += ' ';
            return line.find(" amx_bf16 ") != std::string::npos && line.find(" amx_tile ") != std::string::npos;
        }
    }
    return false;
}

}  // namespace

const char* to_string(ComputeDtype dtype) noexcept {
    return dtype == ComputeDtype::bf16 ? "bf16" : "fp32";
}

torch::ScalarType to_scalar_type(ComputeDtype dtype) noexcept {
    return dtype == ComputeDtype::bf16 ? torch::kBFloat16 : torch::kFloat;
}

ComputeDtype resolve_dtype(Dtype wanted, const torch::Device& device) {
    switch (wanted) {
        case Dtype::fp32:
            return ComputeDtype::fp32;
        case Dtype::bf16:
            return ComputeDtype::bf16;
        case Dtype::auto_select:
            break;
    }
    return device.is_cuda() || (device.is_cpu() && cpu_has_amx_bf16()) ? ComputeDtype::bf16 : ComputeDtype::fp32;
}

LlamaNetwork::LlamaNetwork(LlamaConfig config, ComputeDtype dtype, torch::Device device)
    : config_(std::move(config)), dtype_(dtype), device_(device) {
    const auto options = torch::TensorOptions().dtype(torch::kFloat).device(device_);
    for (auto& [name, shapes] : all_shapes(config_)) {
        ParameterGroup group{name, {}};
        for (auto& parameter : shapes) {
            group.parameters.emplace_back(std::move(parameter.name),
                                          torch::empty(parameter.shape, options).requires_grad_(true));
        }
        groups_.push_back(std::move(group));
    }
    // layer_shapes() lists a layer's parameters in this order.
    std::size_t next = 0;
    const auto take_linear = [&](bool bias) {
        Linear linear;
        linear.weight = next++;
        if (bias) {
            linear.bias = static_cast<std::ptrdiff_t>(next++);
        }
        return linear;
    };
    layout_.input_norm = next++;
    for (auto* linear : {&layout_.q, &layout_.k, &layout_.v, &layout_.o}) {
        *linear = take_linear(config_.attention_bias);
    }
    layout_.post_norm = next++;
    for (auto* linear : {&layout_.gate, &layout_.up, &layout_.down}) {
        *linear = take_linear(config_.mlp_bias);
    }
}

Result<LlamaNetwork> LlamaNetwork::open(const std::filesystem::path& folder, ComputeDtype dtype, torch::Device device) {
    auto config = read_llama_config(folder);
    if (!config) {
        return config.error();
    }
    auto weights = open_weights(folder);
    if (!weights) {
        return weights.error();
    }
    if (auto checked = check_weights(folder, *weights, *config); !checked) {
        return checked.error();
    }
    LlamaNetwork network(std::move(*config), dtype, device);
    if (auto loaded = network.load(folder); !loaded) {
        return loaded.error();
    }
    return network;
}

void LlamaNetwork::initialize_random(std::uint64_t seed) {
    const torch::NoGradGuard no_grad;
    auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
    for (auto& group : groups_) {
        for (auto& [name, parameter] : group.parameters) {
            if (name.ends_with("norm.weight")) {
                parameter.fill_(1.0);
            } else if (name.ends_with(".bias")) {
                parameter.zero_();
            } else {
                auto values = torch::empty(parameter.sizes(), torch::kFloat);
                values.normal_(0.0, config_.initializer_range, generator);
                parameter.copy_(values);
            }
        }
    }
    source_dtypes_.clear();
}

Result<void> LlamaNetwork::load(const std::filesystem::path& folder) {
    const torch::NoGradGuard no_grad;
    auto weights = open_weights(folder);
    if (!weights) {
        return weights.error();
    }
    if (auto checked = check_weights(folder, *weights, config_); !checked) {
        return checked.error();
    }
    std::unordered_map<std::string, torch::ScalarType> dtypes;
    for (auto& group : groups_) {
        for (auto& [name, parameter] : group.parameters) {
            auto value = weights->files[weights->file_of.at(name)].tensor(name);
            if (!value) {
                return value.error();
            }
            dtypes[name] = value->scalar_type();
            parameter.copy_(*value);
        }
    }
    std::error_code ignored;
    std::string config_text;
    if (const auto path = folder / "config.json"; std::filesystem::exists(path, ignored)) {
        auto text = read_text_file(path, kConfigSizeLimit);
        if (!text) {
            return text.error();
        }
        config_text = std::move(*text);
    }
    std::string generation_text;
    if (const auto path = folder / "generation_config.json"; std::filesystem::exists(path, ignored)) {
        auto text = read_text_file(path, kConfigSizeLimit);
        if (!text) {
            return text.error();
        }
        generation_text = std::move(*text);
    }
    source_dtypes_ = std::move(dtypes);
    set_source_config(std::move(config_text), std::move(generation_text));
    return {};
}

void LlamaNetwork::set_source_config(std::string config_json, std::string generation_config_json) {
    source_config_json_ = std::move(config_json);
    source_generation_json_ = std::move(generation_config_json);
}

std::string LlamaNetwork::config_json() const {
    return to_config_json(config_, source_config_json_, dtype_name(saved_dtype(kEmbeddingName)));
}

std::string LlamaNetwork::generation_config_json() const {
    return source_generation_json_.empty() ? to_generation_config_json(config_) : source_generation_json_;
}

Result<void> LlamaNetwork::save(const std::filesystem::path& folder) const {
    std::error_code code;
    std::filesystem::create_directories(folder, code);
    if (code) {
        return io_error(folder.string() + ": cannot create the folder: " + code.message());
    }
    // Weights first: a folder with a config.json is then a folder with weights.
    if (auto written = write_safetensors(folder / "model.safetensors", named_parameters(), {{"format", "pt"}});
        !written) {
        return written.error();
    }
    if (auto written = write_file_atomically(folder / "generation_config.json", generation_config_json()); !written) {
        return written.error();
    }
    return write_file_atomically(folder / "config.json", config_json());
}

std::vector<std::pair<std::string, torch::Tensor>> LlamaNetwork::named_parameters() const {
    std::vector<std::pair<std::string, torch::Tensor>> list;
    for (const auto& group : groups_) {
        for (const auto& [name, parameter] : group.parameters) {
            list.emplace_back(name, parameter.detach().to(saved_dtype(name)));
        }
    }
    return list;
}

torch::ScalarType LlamaNetwork::saved_dtype(const std::string& name) const {
    const auto found = source_dtypes_.find(name);
    return found == source_dtypes_.end() ? torch::kFloat : found->second;
}

torch::Tensor LlamaNetwork::weight_of(const ParameterGroup& group, std::size_t index) const {
    return group.parameters[index].second.to(to_scalar_type(dtype_));
}

torch::Tensor LlamaNetwork::linear(const ParameterGroup& group, const Linear& linear,
                                   const torch::Tensor& input) const {
    std::optional<torch::Tensor> bias;
    if (linear.bias >= 0) {
        bias = weight_of(group, static_cast<std::size_t>(linear.bias));
    }
    return at::linear(input, weight_of(group, linear.weight), bias);
}

torch::Tensor LlamaNetwork::norm(const ParameterGroup& group, std::size_t index, const torch::Tensor& input) const {
    const auto wide = input.to(torch::kFloat);
    const auto scale = torch::rsqrt(wide.square().mean(-1, true) + config_.rms_norm_eps);
    return weight_of(group, index) * (wide * scale).to(input.scalar_type());
}

torch::Tensor LlamaNetwork::attention(const ParameterGroup& group, const torch::Tensor& input,
                                      const Rotary& rotary) const {
    const auto rows = input.size(0);
    const auto columns = input.size(1);
    const auto heads = config_.num_attention_heads;
    const auto key_heads = config_.num_key_value_heads;
    const auto split = [&](const Linear& projection, std::int64_t count) {
        return linear(group, projection, input).view({rows, columns, count, config_.head_dim}).transpose(1, 2);
    };
    const auto query = rotate(split(layout_.q, heads), rotary.cos, rotary.sin);
    const auto key = rotate(split(layout_.k, key_heads), rotary.cos, rotary.sin);
    const auto value = split(layout_.v, key_heads);
    const auto mixed = at::scaled_dot_product_attention(query, key, value, /*attn_mask=*/{}, /*dropout_p=*/0.0,
                                                        /*is_causal=*/true, /*scale=*/std::nullopt,
                                                        /*enable_gqa=*/heads != key_heads);
    return linear(group, layout_.o, mixed.transpose(1, 2).reshape({rows, columns, heads * config_.head_dim}));
}

torch::Tensor LlamaNetwork::mlp(const ParameterGroup& group, const torch::Tensor& input) const {
    return linear(group, layout_.down,
                  torch::silu(linear(group, layout_.gate, input)) * linear(group, layout_.up, input));
}

LlamaNetwork::Rotary LlamaNetwork::rotary_for(std::int64_t columns) {
    if (!rotary_.cos.defined() || rotary_.cos.size(0) < columns) {
        const torch::NoGradGuard no_grad;
        // Cached beyond this call: made in inference mode, they could not serve a training step later.
        const c10::InferenceMode normal_mode(false);
        const auto positions = torch::arange(columns, torch::kInt64).to(torch::kFloat);
        const auto angles = torch::outer(positions, inverse_frequencies(config_));
        rotary_.cos = angles.cos().to(device_, to_scalar_type(dtype_));
        rotary_.sin = angles.sin().to(device_, to_scalar_type(dtype_));
    }
    return {rotary_.cos.narrow(0, 0, columns), rotary_.sin.narrow(0, 0, columns)};
}

torch::Tensor LlamaNetwork::forward(const torch::Tensor& input_ids, const BeforeGroup& before) {
    TORCH_CHECK(input_ids.dim() == 2 && input_ids.scalar_type() == torch::kInt64,
                "input_ids must be [B, T] int64, got ", input_ids.sizes(), " ", input_ids.scalar_type());
    const auto announce = [&](std::size_t group) {
        if (before) {
            before(group);
        }
    };
    const auto rotary = rotary_for(input_ids.size(1));
    announce(0);
    // Looking up first and converting after gives the same bits as the other order, and converts fewer numbers.
    auto hidden = at::embedding(groups_.front().parameters.front().second, input_ids).to(to_scalar_type(dtype_));
    for (std::size_t index = 1; index + 1 < groups_.size(); ++index) {
        announce(index);
        const auto& group = groups_[index];
        hidden = hidden + attention(group, norm(group, layout_.input_norm, hidden), rotary);
        hidden = hidden + mlp(group, norm(group, layout_.post_norm, hidden));
    }
    announce(groups_.size() - 1);
    return norm(groups_.back(), 0, hidden);
}

torch::Tensor LlamaNetwork::head_weight() const {
    return config_.tie_word_embeddings ? weight_of(groups_.front(), 0) : weight_of(groups_.back(), 1);
}

torch::Tensor LlamaNetwork::project(const torch::Tensor& hidden) const {
    return at::linear(hidden, head_weight());
}

void LlamaNetwork::freeze_for_inference() {
    const torch::NoGradGuard no_grad;
    for (auto& group : groups_) {
        for (auto& [name, parameter] : group.parameters) {
            parameter = parameter.detach().to(to_scalar_type(dtype_));
        }
    }
}

std::uint64_t LlamaNetwork::parameter_count() const {
    return models::parameter_count(config_);
}

Result<void> copy_tokenizer_files(const std::filesystem::path& from_folder, const std::filesystem::path& to_folder) {
    for (const char* name : {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.json",
                             "merges.txt", "tokenizer.model", "chat_template.jinja", "added_tokens.json"}) {
        std::error_code code;
        if (!std::filesystem::exists(from_folder / name, code)) {
            continue;
        }
        if (std::filesystem::equivalent(from_folder / name, to_folder / name, code)) {
            continue;
        }
        if (auto copied = copy_file_atomically(from_folder / name, to_folder / name); !copied) {
            return copied.error();
        }
    }
    return {};
}

}  // namespace distilld::models
