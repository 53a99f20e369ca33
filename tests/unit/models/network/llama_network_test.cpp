#include "models/network/llama_network.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ATen/CPUGeneratorImpl.h>

#include <cmath>
#include <map>
#include <set>

#include "base/sha256.hpp"
#include "models/weights/safetensors.hpp"
#include "tests/support/temporary_folder.hpp"

namespace distilld::models {
namespace {

using test::file_count;
using test::read_bytes;
using test::TemporaryFolder;
using test::write_bytes;

using testing::ElementsAre;
using testing::HasSubstr;

LlamaConfig small_config(bool tied = false, std::int64_t key_heads = 2) {
    LlamaConfig config;
    config.vocab_size = 61;
    config.hidden_size = 32;
    config.intermediate_size = 48;
    config.num_hidden_layers = 3;
    config.num_attention_heads = 4;
    config.num_key_value_heads = key_heads;
    config.head_dim = 8;
    config.max_position_embeddings = 64;
    config.tie_word_embeddings = tied;
    config.initializer_range = 0.2;
    return config;
}

LlamaNetwork make_network(const LlamaConfig& config, ComputeDtype dtype = ComputeDtype::fp32, std::uint64_t seed = 7) {
    LlamaNetwork network(config, dtype, torch::kCPU);
    network.initialize_random(seed);
    return network;
}

torch::Tensor ids(std::int64_t rows, std::int64_t columns, std::int64_t vocabulary = 61) {
    return (torch::arange(rows * columns) * 17 + 3).remainder(vocabulary).reshape({rows, columns});
}

bool same_bits(const torch::Tensor& left, const torch::Tensor& right) {
    return left.scalar_type() == right.scalar_type() && torch::equal(left, right);
}

/// The textbook formula in double precision, one position at a time: nothing shared with the network's code.
torch::Tensor reference_logits(const LlamaNetwork& network, const torch::Tensor& input_ids) {
    const torch::NoGradGuard no_grad;
    const auto& config = network.config();
    std::map<std::string, torch::Tensor> weights;
    for (const auto& [name, value] : network.named_parameters()) {
        weights[name] = value.to(torch::kDouble);
    }
    const auto norm = [&](const torch::Tensor& x, const std::string& name) {
        return x / (x * x).mean(-1, true).add(config.rms_norm_eps).sqrt() * weights.at(name);
    };
    const auto rotate = [&](const torch::Tensor& x) {  // [T, D]
        auto out = x.clone();
        const auto half = config.head_dim / 2;
        for (std::int64_t t = 0; t < x.size(0); ++t) {
            for (std::int64_t i = 0; i < half; ++i) {
                const double angle =
                    static_cast<double>(t) /
                    std::pow(config.rope_theta, 2.0 * static_cast<double>(i) / static_cast<double>(config.head_dim));
                const double a = x[t][i].item<double>();
                const double b = x[t][i + half].item<double>();
                out[t][i] = a * std::cos(angle) - b * std::sin(angle);
                out[t][i + half] = b * std::cos(angle) + a * std::sin(angle);
            }
        }
        return out;
    };
    std::vector<torch::Tensor> rows;
    for (std::int64_t b = 0; b < input_ids.size(0); ++b) {
        auto x = weights.at("model.embed_tokens.weight").index_select(0, input_ids[b]);
        for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
            const auto prefix = "model.layers." + std::to_string(layer) + ".";
            const auto y = norm(x, prefix + "input_layernorm.weight");
            const auto q = y.mm(weights.at(prefix + "self_attn.q_proj.weight").t());
            const auto k = y.mm(weights.at(prefix + "self_attn.k_proj.weight").t());
            const auto v = y.mm(weights.at(prefix + "self_attn.v_proj.weight").t());
            std::vector<torch::Tensor> heads;
            for (std::int64_t head = 0; head < config.num_attention_heads; ++head) {
                const auto key_head = head / (config.num_attention_heads / config.num_key_value_heads);
                const auto d = config.head_dim;
                const auto qh = rotate(q.narrow(1, head * d, d));
                const auto kh = rotate(k.narrow(1, key_head * d, d));
                auto scores = qh.mm(kh.t()) / std::sqrt(static_cast<double>(d));
                const auto future = torch::ones_like(scores).triu(1).to(torch::kBool);
                scores = scores.masked_fill(future, -std::numeric_limits<double>::infinity());
                heads.push_back(scores.softmax(-1).mm(v.narrow(1, key_head * d, d)));
            }
            x = x + torch::cat(heads, 1).mm(weights.at(prefix + "self_attn.o_proj.weight").t());
            const auto z = norm(x, prefix + "post_attention_layernorm.weight");
            const auto gate = z.mm(weights.at(prefix + "mlp.gate_proj.weight").t());
            const auto up = z.mm(weights.at(prefix + "mlp.up_proj.weight").t());
            x = x + (gate * gate.sigmoid() * up).mm(weights.at(prefix + "mlp.down_proj.weight").t());
        }
        const auto* head = config.tie_word_embeddings ? "model.embed_tokens.weight" : "lm_head.weight";
        rows.push_back(norm(x, "model.norm.weight").mm(weights.at(head).t()));
    }
    return torch::stack(rows);
}

class NetworkShapes : public testing::TestWithParam<std::tuple<bool, std::int64_t>> {};

TEST_P(NetworkShapes, ComputesTheTextbookFormula) {
    const auto [tied, key_heads] = GetParam();
    auto network = make_network(small_config(tied, key_heads));
    const torch::NoGradGuard no_grad;
    const auto input = ids(2, 9);
    const auto hidden = network.forward(input);
    ASSERT_EQ(hidden.sizes(), (std::vector<std::int64_t>{2, 9, 32}));
    const auto logits = network.project(hidden.reshape({18, 32})).reshape({2, 9, 61});
    const auto expected = reference_logits(network, input);
    EXPECT_GT(expected.std().item<double>(), 0.1);
    EXPECT_LT((logits.to(torch::kDouble) - expected).abs().max().item<double>(), 2e-5);
}

TEST_P(NetworkShapes, CountsEachParameterOnce) {
    const auto [tied, key_heads] = GetParam();
    const auto network = make_network(small_config(tied, key_heads));
    std::uint64_t count = 0;
    std::set<std::string> names;
    std::set<void*> memory;
    for (const auto& group : network.groups()) {
        for (const auto& [name, parameter] : group.parameters) {
            EXPECT_TRUE(names.insert(name).second) << name;
            EXPECT_TRUE(memory.insert(parameter.data_ptr()).second) << name;
            EXPECT_TRUE(parameter.is_leaf() && parameter.requires_grad()) << name;
            EXPECT_EQ(parameter.scalar_type(), torch::kFloat);
            count += static_cast<std::uint64_t>(parameter.numel());
        }
    }
    EXPECT_EQ(network.parameter_count(), count);
    EXPECT_EQ(names.contains("lm_head.weight"), !tied);
    ASSERT_EQ(network.groups().size(), 5U);
    EXPECT_EQ(network.groups()[1].parameters[1].first, "model.layers.0.self_attn.q_proj.weight");
}

TEST_P(NetworkShapes, GivesEveryParameterAGradient) {
    const auto [tied, key_heads] = GetParam();
    for (const auto dtype : {ComputeDtype::fp32, ComputeDtype::bf16}) {
        auto network = make_network(small_config(tied, key_heads), dtype);
        network.project(network.forward(ids(2, 8))).to(torch::kFloat).log_softmax(-1).select(-1, 5).sum().backward();
        for (const auto& group : network.groups()) {
            for (const auto& [name, parameter] : group.parameters) {
                ASSERT_TRUE(parameter.grad().defined()) << name;
                EXPECT_EQ(parameter.grad().scalar_type(), torch::kFloat) << name;
                EXPECT_GT(parameter.grad().abs().sum().item<double>(), 0.0) << name;
            }
        }
    }
}

INSTANTIATE_TEST_SUITE_P(All, NetworkShapes, testing::Combine(testing::Bool(), testing::Values<std::int64_t>(1, 2, 4)));

TEST(LlamaNetwork, GradientsAgreeWithFiniteDifferences) {
    auto network = make_network(small_config(true));
    const auto input = ids(1, 6);
    const auto target = torch::randn({6, 61}, at::make_generator<at::CPUGeneratorImpl>(3));
    const auto loss = [&] { return (network.project(network.forward(input)[0]) * target).sum(); };
    loss().backward();
    for (const std::size_t g : {0U, 1U, 3U, 4U}) {
        for (auto& [name, parameter] : network.groups()[g].parameters) {
            const torch::NoGradGuard no_grad;
            // Along the gradient itself the slope is its norm, the largest there is.
            const auto direction = parameter.grad() / parameter.grad().norm();
            const double step = 1e-2;
            parameter.add_(direction, step);
            const double above = loss().item<double>();
            parameter.add_(direction, -2 * step);
            const double below = loss().item<double>();
            parameter.add_(direction, step);
            const double slope = parameter.grad().norm().item<double>();
            EXPECT_NEAR((above - below) / (2 * step) / slope, 1.0, 2e-2) << name;
        }
    }
}

TEST(LlamaNetwork, LaterTokensDoNotChangeEarlierRows) {
    auto network = make_network(small_config());
    const torch::NoGradGuard no_grad;
    const auto input = ids(2, 12);
    const auto before = network.forward(input);
    for (const std::int64_t t : {1, 5, 11}) {
        auto changed = input.clone();
        changed.select(1, t).copy_((changed.select(1, t) + 1).remainder(61));
        const auto after = network.forward(changed);
        EXPECT_TRUE(same_bits(before.narrow(1, 0, t), after.narrow(1, 0, t))) << t;
        EXPECT_FALSE(torch::equal(before.select(1, t), after.select(1, t))) << t;
    }
}

TEST(LlamaNetwork, AnnouncesEachGroupOnceInOrder) {
    auto network = make_network(small_config());
    std::vector<std::size_t> seen;
    const torch::NoGradGuard no_grad;
    network.forward(ids(1, 4), [&](std::size_t group) { seen.push_back(group); });
    EXPECT_THAT(seen, ElementsAre(0, 1, 2, 3, 4));
}

TEST(LlamaNetwork, UsesAGroupOnlyAfterItsAnnouncement) {
    // Parameters of group g are wrong until before(g): the result must be that of the right ones.
    const torch::NoGradGuard no_grad;
    auto network = make_network(small_config());
    const auto expected = network.forward(ids(1, 5));
    std::vector<std::vector<torch::Tensor>> right;
    for (auto& group : network.groups()) {
        right.emplace_back();
        for (auto& [name, parameter] : group.parameters) {
            right.back().push_back(parameter.clone());
            parameter.fill_(std::numeric_limits<float>::quiet_NaN());
        }
    }
    const auto actual = network.forward(ids(1, 5), [&](std::size_t g) {
        for (std::size_t i = 0; i < right[g].size(); ++i) {
            network.groups()[g].parameters[i].second.copy_(right[g][i]);
        }
    });
    EXPECT_TRUE(same_bits(actual, expected));
}

TEST(LlamaNetwork, RandomWeightsDependOnTheSeedOnly) {
    torch::manual_seed(1);
    const auto first = make_network(small_config(), ComputeDtype::fp32, 42).named_parameters();
    torch::manual_seed(2);
    torch::rand({100});
    const auto second = make_network(small_config(), ComputeDtype::fp32, 42).named_parameters();
    const auto other = make_network(small_config(), ComputeDtype::fp32, 43).named_parameters();
    for (std::size_t i = 0; i < first.size(); ++i) {
        EXPECT_TRUE(same_bits(first[i].second, second[i].second)) << first[i].first;
        if (!first[i].first.ends_with("norm.weight")) {
            EXPECT_FALSE(torch::equal(first[i].second, other[i].second)) << first[i].first;
        }
    }
    EXPECT_NEAR(first[0].second.std().item<double>(), 0.2, 0.02);
    EXPECT_NEAR(first[0].second.mean().item<double>(), 0.0, 0.02);
}

TEST(LlamaNetwork, Bf16IsCloseToFp32) {
    auto exact = make_network(small_config());
    auto rounded = make_network(small_config(), ComputeDtype::bf16);
    const torch::NoGradGuard no_grad;
    const auto expected = exact.project(exact.forward(ids(2, 16)));
    const auto actual = rounded.project(rounded.forward(ids(2, 16)));
    EXPECT_EQ(actual.scalar_type(), torch::kBFloat16);
    const auto error = (actual.to(torch::kFloat) - expected).norm() / expected.norm();
    EXPECT_LT(error.item<double>(), 0.03);
    rounded.freeze_for_inference();
    EXPECT_TRUE(same_bits(rounded.project(rounded.forward(ids(2, 16))), actual));
    EXPECT_EQ(rounded.groups()[0].parameters[0].second.scalar_type(), torch::kBFloat16);
}

TEST(LlamaNetwork, TrainsAfterAnInferenceModePass) {
    auto network = make_network(small_config());
    {
        const c10::InferenceMode inference;
        network.forward(ids(1, 8));
    }
    network.forward(ids(1, 8)).sum().backward();
    EXPECT_TRUE(network.groups()[0].parameters[0].second.grad().defined());
}

TEST(LlamaNetwork, BiasesTakePart) {
    auto config = small_config();
    config.attention_bias = true;
    config.mlp_bias = true;
    auto network = make_network(config);
    const torch::NoGradGuard no_grad;
    auto last = network.forward(ids(1, 6));
    std::size_t biases = 0;
    for (auto& [name, parameter] : network.groups()[1].parameters) {
        if (name.ends_with(".bias")) {
            ++biases;
            parameter.normal_();
            auto next = network.forward(ids(1, 6));
            // A key bias shifts all scores of a query alike, but for the rotation.
            EXPECT_FALSE(torch::equal(last, next)) << name;
            last = next;
        }
    }
    EXPECT_EQ(biases, 7U);
    EXPECT_EQ(network.groups()[1].parameters.size(), 16U);
}

TEST(LlamaNetwork, RefusesOtherInputs) {
    auto network = make_network(small_config());
    EXPECT_THROW(network.forward(torch::zeros({4}, torch::kInt64)), c10::Error);
    EXPECT_THROW(network.forward(torch::zeros({1, 4})), c10::Error);
    EXPECT_THROW(network.forward(torch::full({1, 4}, 61, torch::kInt64)), std::exception);
}

TEST(LlamaFolder, SaveAndLoadKeepsEveryBit) {
    for (const bool tied : {false, true}) {
        const TemporaryFolder folder;
        auto network = make_network(small_config(tied));
        ASSERT_TRUE(network.save(folder / "a"));
        EXPECT_EQ(file_count(folder / "a"), 3U);
        auto copy = LlamaNetwork::open(folder / "a", ComputeDtype::fp32, torch::kCPU);
        ASSERT_TRUE(copy) << copy.error().message;
        EXPECT_EQ(copy->config().hidden_size, 32);
        EXPECT_EQ(copy->config().tie_word_embeddings, tied);
        ASSERT_TRUE(copy->save(folder / "b"));
        for (const auto* name : {"model.safetensors", "config.json", "generation_config.json"}) {
            EXPECT_EQ(read_bytes(folder / "a" / name), read_bytes(folder / "b" / name)) << name;
        }
        const torch::NoGradGuard no_grad;
        EXPECT_TRUE(same_bits(network.forward(ids(2, 7)), copy->forward(ids(2, 7))));
    }
}

TEST(LlamaFolder, KeepsTheDtypeOfEachTensor) {
    const TemporaryFolder folder;
    const auto network = make_network(small_config());
    ASSERT_TRUE(network.save(folder / "fp32"));
    std::filesystem::create_directory(folder / "half");
    std::filesystem::copy(folder / "fp32/config.json", folder / "half/config.json");
    write_bytes(folder / "half/generation_config.json", "{\"temperature\": 0.6}");
    auto tensors = network.named_parameters();
    for (std::size_t i = 0; i < tensors.size(); ++i) {
        auto& tensor = tensors[i].second;
        tensor = tensor.to(i % 5 == 1 ? torch::kHalf : i % 5 == 2 ? torch::kFloat : torch::kBFloat16);
    }
    ASSERT_TRUE(write_safetensors(folder / "half/model.safetensors", tensors, {{"format", "pt"}}));
    for (const auto dtype : {ComputeDtype::fp32, ComputeDtype::bf16}) {
        auto loaded = LlamaNetwork::open(folder / "half", dtype, torch::kCPU);
        ASSERT_TRUE(loaded) << loaded.error().message;
        EXPECT_EQ(loaded->groups()[0].parameters[0].second.scalar_type(), torch::kFloat);
        ASSERT_TRUE(loaded->save(folder / "again"));
        EXPECT_EQ(sha256_file(folder / "half/model.safetensors").value(),
                  sha256_file(folder / "again/model.safetensors").value());
        EXPECT_EQ(read_bytes(folder / "again/generation_config.json"), "{\"temperature\": 0.6}");
        EXPECT_THAT(read_bytes(folder / "again/config.json"), HasSubstr("\"torch_dtype\": \"bfloat16\""));
    }
}

TEST(LlamaFolder, ReadsShards) {
    const TemporaryFolder folder;
    auto network = make_network(small_config());
    ASSERT_TRUE(network.save(folder / "one"));
    std::filesystem::create_directory(folder / "two");
    std::filesystem::copy(folder / "one/config.json", folder / "two/config.json");
    const auto all = network.named_parameters();
    const auto middle = all.begin() + 9;
    const std::string first = "model-00001-of-00002.safetensors";
    const std::string second = "model-00002-of-00002.safetensors";
    ASSERT_TRUE(write_safetensors(folder / "two" / first, {all.begin(), middle}));
    ASSERT_TRUE(write_safetensors(folder / "two" / second, {middle, all.end()}));
    const auto index = [&](const std::string& odd_name, const std::string& odd_file) {
        std::string text = "{\"metadata\": {}, \"weight_map\": {";
        for (auto item = all.begin(); item != all.end(); ++item) {
            const auto file = item->first == odd_name ? odd_file : item < middle ? first : second;
            text += (item == all.begin() ? "\"" : ", \"") + item->first + "\": \"" + file + "\"";
        }
        write_bytes(folder / "two/model.safetensors.index.json", text + "}}");
        return LlamaNetwork::open(folder / "two", ComputeDtype::fp32, torch::kCPU);
    };
    auto loaded = index("", "");
    ASSERT_TRUE(loaded) << loaded.error().message;
    const auto read = loaded->named_parameters();
    for (std::size_t i = 0; i < all.size(); ++i) {
        EXPECT_TRUE(same_bits(read[i].second, all[i].second)) << all[i].first;
    }
    EXPECT_THAT(index("model.norm.weight", first).error().message,
                HasSubstr("tensor model.norm.weight is not in " + first));
    EXPECT_THAT(index("model.norm.weight", "../" + second).error().message, HasSubstr("a file name without a folder"));
    EXPECT_THAT(index("model.norm.weight", "absent.safetensors").error().message,
                HasSubstr("absent.safetensors: cannot open"));
    write_bytes(folder / "two/model.safetensors.index.json", "{}");
    EXPECT_THAT(LlamaNetwork::open(folder / "two", ComputeDtype::fp32, torch::kCPU).error().message,
                HasSubstr("has no weight_map object"));
    write_bytes(folder / "two/model.safetensors.index.json", "{");
    EXPECT_THAT(LlamaNetwork::open(folder / "two", ComputeDtype::fp32, torch::kCPU).error().message,
                HasSubstr("not JSON"));
}

TEST(LlamaFolder, NamesTheTensorThatIsWrong) {
    const TemporaryFolder folder;
    const auto network = make_network(small_config(true));
    ASSERT_TRUE(network.save(folder.path()));
    const auto with = [&](const std::function<void(std::vector<std::pair<std::string, torch::Tensor>>&)>& change) {
        auto tensors = network.named_parameters();
        change(tensors);
        EXPECT_TRUE(write_safetensors(folder / "model.safetensors", tensors));
        const auto loaded = LlamaNetwork::open(folder.path(), ComputeDtype::fp32, torch::kCPU);
        return loaded ? std::string() : loaded.error().message;
    };
    EXPECT_EQ(with([](auto&) {}), "");
    EXPECT_EQ(with([](auto& tensors) {
                  tensors.emplace_back("lm_head.weight", torch::ones({61, 32}));
                  tensors.emplace_back("model.layers.0.self_attn.rotary_emb.inv_freq", torch::ones({4}));
              }),
              "");
    EXPECT_THAT(with([](auto& tensors) { tensors.erase(tensors.begin() + 4); }),
                HasSubstr("tensor model.layers.0.self_attn.v_proj.weight is missing"));
    EXPECT_THAT(
        with([](auto& tensors) { tensors[2].second = tensors[2].second.t().narrow(0, 0, 31); }),
        HasSubstr("tensor model.layers.0.self_attn.q_proj.weight has shape [31, 32], the configuration asks for "
                  "[32, 32]"));
    EXPECT_THAT(with([](auto& tensors) { tensors[2].second = tensors[2].second.to(torch::kInt32); }),
                HasSubstr("has dtype Int; F32, F16 or BF16 is expected"));
    EXPECT_THAT(with([](auto& tensors) { tensors.emplace_back("model.layers.3.extra", torch::ones({1})); }),
                HasSubstr("1 tensors do not belong to this Llama network: model.layers.3.extra"));
    std::filesystem::remove(folder / "model.safetensors");
    EXPECT_THAT(LlamaNetwork::open(folder.path(), ComputeDtype::fp32, torch::kCPU).error().message,
                HasSubstr("has neither model.safetensors nor model.safetensors.index.json"));
}

TEST(LlamaFolder, ChecksTheFilesBeforeItAllocates) {
    const TemporaryFolder folder;
    ASSERT_TRUE(make_network(small_config()).save(folder.path()));
    // Ten thousand times the memory of the machine, were it allocated.
    write_bytes(folder / "config.json", R"({"vocab_size": 16000000, "hidden_size": 131072, "num_attention_heads": 1024,
        "num_hidden_layers": 8, "intermediate_size": 131072})");
    EXPECT_THAT(LlamaNetwork::open(folder.path(), ComputeDtype::fp32, torch::kCPU).error().message,
                HasSubstr("tensor model.embed_tokens.weight has shape [61, 32]"));
}

TEST(TokenizerFiles, AreCopiedByteForByte) {
    const TemporaryFolder folder;
    std::filesystem::create_directory(folder / "from");
    std::filesystem::create_directory(folder / "to");
    write_bytes(folder / "from/tokenizer.json", std::string("{\"a\": 1}\n\0x", 11));
    write_bytes(folder / "from/chat_template.jinja", "{{ messages }}");
    write_bytes(folder / "from/README.md", "not a tokenizer file");
    ASSERT_TRUE(copy_tokenizer_files(folder / "from", folder / "to"));
    EXPECT_EQ(file_count(folder / "to"), 2U);
    EXPECT_EQ(read_bytes(folder / "to/tokenizer.json"), read_bytes(folder / "from/tokenizer.json"));
    EXPECT_EQ(read_bytes(folder / "to/chat_template.jinja"), "{{ messages }}");
    ASSERT_TRUE(copy_tokenizer_files(folder / "to", folder / "to"));
    EXPECT_THAT(copy_tokenizer_files(folder / "from", folder / "absent").error().message, HasSubstr("cannot create"));
}

TEST(ResolveDtype, KeepsWhatIsAskedFor) {
    EXPECT_EQ(resolve_dtype(Dtype::fp32, torch::kCPU), ComputeDtype::fp32);
    EXPECT_EQ(resolve_dtype(Dtype::bf16, torch::kCPU), ComputeDtype::bf16);
    EXPECT_EQ(resolve_dtype(Dtype::auto_select, torch::kCUDA), ComputeDtype::bf16);
    const auto flags = read_bytes("/proc/cpuinfo");
    const bool amx = flags.find("amx_bf16") != std::string::npos && flags.find("amx_tile") != std::string::npos;
    EXPECT_EQ(resolve_dtype(Dtype::auto_select, torch::kCPU), amx ? ComputeDtype::bf16 : ComputeDtype::fp32);
}

}  // namespace
}  // namespace distilld::models
