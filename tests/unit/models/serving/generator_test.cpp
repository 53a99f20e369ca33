#include "models/serving/network_generator.hpp"

#include <gmock/gmock.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <cmath>
#include <map>

#include "models/families/adapter_config.hpp"
#include "models/network/causal_lm.hpp"
#include "models/network/lora.hpp"
#include "models/weights/adapter_export.hpp"
#include "models/weights/safetensors.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/unit/models/network/small_network.hpp"

namespace distilld::models {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr GeneratorLimits kLimits{.max_sequences = 4, .max_positions = 1000};

std::vector<std::int32_t> prompt_of(std::int32_t first, std::size_t length) {
    std::vector<std::int32_t> ids;
    for (std::size_t i = 0; i < length; ++i) {
        ids.push_back(static_cast<std::int32_t>((static_cast<std::size_t>(first) + 17 * i) % 61));
    }
    return ids;
}

struct Answer {
    std::vector<std::int32_t> ids{};
    std::vector<float> logprobs{};
    std::vector<SaidToken> prompt{};
    std::optional<GenerationStep::End> end{};

    friend bool operator==(const Answer& a, const Answer& b) {
        return a.ids == b.ids && a.logprobs == b.logprobs && a.end == b.end;
    }
};

void step(Generator& generator, std::map<std::uint64_t, Answer>& answers) {
    for (const GenerationStep& news : generator.step()) {
        Answer& answer = answers[news.sequence];
        answer.prompt.insert(answer.prompt.end(), news.prompt.begin(), news.prompt.end());
        if (news.token) {
            answer.ids.push_back(news.token->id);
            answer.logprobs.push_back(news.token->logprob);
        }
        answer.end = news.end;
    }
}

Answer alone(CausalLm& network, GenerationRequest request) {
    const auto generator = make_generator(network, kLimits);
    const std::uint64_t number = generator->add(std::move(request));
    std::map<std::uint64_t, Answer> answers;
    while (!generator->idle()) {
        step(*generator, answers);
    }
    return answers[number];
}

class GeneratorTest : public ::testing::Test {
  protected:
    GeneratorTest() {
        ModelConfig config = test::small_config();
        config.decoder.max_position_embeddings = 600;
        network_ = test::make_network(config);
    }

    /// log-softmax after each position of the ids, from one forward pass.
    torch::Tensor reference(const std::vector<std::int32_t>& ids) {
        const torch::NoGradGuard no_grad;
        const std::vector<std::int64_t> wide(ids.begin(), ids.end());
        return network_->project(network_->forward(torch::tensor(wide, torch::kInt64).unsqueeze(0))[0]).log_softmax(-1);
    }

    std::unique_ptr<CausalLm> network_;
};

TEST_F(GeneratorTest, TheLikeliestTokensAreThoseOfWholeForwardPasses) {
    for (const std::size_t length : {1, 5, 300}) {
        std::vector<std::int32_t> ids = prompt_of(3, length);
        const Answer answer =
            alone(*network_, {.prompt = ids, .max_tokens = 8, .choice = {.temperature = 0}, .top_logprobs = 2});
        ASSERT_EQ(answer.ids.size(), 8U);
        EXPECT_EQ(answer.end, GenerationStep::End::length);
        for (std::size_t i = 0; i < 8; ++i) {
            const torch::Tensor last = reference(ids)[-1];
            EXPECT_EQ(answer.ids[i], last.argmax().item<std::int64_t>()) << "token " << i << " behind " << length;
            EXPECT_NEAR(answer.logprobs[i], last.max().item<float>(), 1e-4);
            ids.push_back(answer.ids[i]);
        }
    }
}

TEST_F(GeneratorTest, NoAnswerDependsOnTheOthers) {
    std::vector<GenerationRequest> requests;
    for (std::uint32_t i = 0; i < 7; ++i) {
        requests.push_back({.prompt = prompt_of(static_cast<std::int32_t>(i), 3 + 130 * (i % 3)),
                            .max_tokens = 5 + i,
                            .choice = {.temperature = i % 2 == 0 ? 0.0 : 1.2, .top_p = 0.95, .seed = 5, .answer = i}});
    }
    std::vector<Answer> expected;
    for (const GenerationRequest& request : requests) {
        expected.push_back(alone(*network_, request));
    }
    for (const std::size_t every : {1, 3}) {  // a new one in each step, or in every third
        const auto generator = make_generator(*network_, {.max_sequences = 7, .max_positions = 4000});
        std::map<std::uint64_t, Answer> answers;
        for (std::size_t steps = 0; steps < requests.size() * every || !generator->idle(); ++steps) {
            if (steps % every == 0 && steps / every < requests.size()) {
                EXPECT_EQ(generator->add(requests[steps / every]), steps / every);
            }
            step(*generator, answers);
        }
        for (std::size_t i = 0; i < requests.size(); ++i) {
            EXPECT_EQ(answers[i], expected[i]) << "answer " << i;
        }
    }
}

TEST_F(GeneratorTest, ThePromptIsEchoedWithItsLogProbabilities) {
    const std::vector<std::int32_t> ids = prompt_of(9, 270);
    const Answer answer = alone(*network_, {.prompt = ids, .max_tokens = 0, .top_logprobs = 3, .echo = true});
    EXPECT_TRUE(answer.ids.empty());
    EXPECT_EQ(answer.end, GenerationStep::End::length);
    ASSERT_EQ(answer.prompt.size(), ids.size() - 1);
    const torch::Tensor logprobs = reference(ids);
    for (std::size_t i = 0; i + 1 < ids.size(); ++i) {
        const SaidToken& token = answer.prompt[i];
        EXPECT_EQ(token.id, ids[i + 1]);
        EXPECT_NEAR(token.logprob, logprobs[static_cast<std::int64_t>(i)][ids[i + 1]].item<float>(), 1e-4);
        ASSERT_EQ(token.top.size(), 3U);
        EXPECT_NEAR(token.top[0].value, logprobs[static_cast<std::int64_t>(i)].max().item<float>(), 1e-4);
    }
}

TEST_F(GeneratorTest, AStopTokenEndsTheAnswerAndBelongsToIt) {
    const GenerationRequest request{.prompt = prompt_of(3, 5), .max_tokens = 8, .choice = {.temperature = 0}};
    const Answer whole = alone(*network_, request);
    GenerationRequest stopped = request;
    stopped.stop_ids = {60, whole.ids[2]};
    const Answer answer = alone(*network_, stopped);
    const auto first = std::ranges::find(whole.ids, whole.ids[2]) - whole.ids.begin();
    EXPECT_EQ(answer.ids, std::vector<std::int32_t>(whole.ids.begin(), whole.ids.begin() + first + 1));
    EXPECT_EQ(answer.end, GenerationStep::End::stop);
}

TEST_F(GeneratorTest, AdaptersAnswerBesideTheModelWithTheirOwnBits) {
    const test::TemporaryFolder folder;
    const auto adapted = test::make_network(network_->config());
    ASSERT_TRUE(declare_adapters(*adapted, {.r = 4, .alpha = 8, .target_modules = {"q_proj", "down_proj"}}, 3));
    initialize_adapters(*adapted);
    NamedTensors tensors;
    {
        const torch::NoGradGuard no_grad;
        for (ParameterGroup& group : adapted->groups()) {
            for (Parameter& parameter : group.parameters) {
                if (parameter.trainable) {
                    parameter.master.uniform_(-0.4, 0.4);
                    tensors.push_back({parameter.name, parameter.master});
                }
            }
        }
    }
    ASSERT_TRUE(write_safetensors(folder / kAdapterWeightsFile, tensors));
    const auto write_config = [&](std::int64_t r) {
        test::write_bytes(folder / kAdapterConfigFile,
                          to_adapter_config_json({"base", r, 8, 0, {"down_proj", "q_proj"}, false}));
    };
    write_config(4);
    const auto generator = make_generator(*network_, {.max_sequences = 7, .max_positions = 4000});
    const auto loaded = generator->load_adapter(folder.path());
    ASSERT_TRUE(loaded) << loaded.error().message;

    const GenerationRequest plain{.prompt = prompt_of(3, 40), .max_tokens = 6, .choice = {.temperature = 0}};
    GenerationRequest with = plain;
    with.adapter = *loaded;
    const Answer expected = alone(*adapted, plain);
    EXPECT_EQ(alone(*network_, with), expected) << "as the student whose adapter it is";
    EXPECT_NE(alone(*network_, plain), expected);
    std::map<std::uint64_t, Answer> answers;
    generator->add(with);
    generator->add(plain);
    step(*generator, answers);
    generator->add(with);
    while (!generator->idle()) {
        step(*generator, answers);
    }
    EXPECT_EQ(answers[0], expected);
    EXPECT_EQ(answers[1], alone(*network_, plain));
    EXPECT_EQ(answers[2], expected);

    write_config(65536);
    EXPECT_THAT(generator->load_adapter(folder.path()).error().message, HasSubstr("lora_A.weight is Float [4, 32]"));
    test::write_bytes(folder / kAdapterConfigFile, to_adapter_config_json({"base", 4, 8, 0, {"nothing"}, false}));
    EXPECT_THAT(generator->load_adapter(folder.path()).error().message,
                HasSubstr("adapter_config.json: target_modules"));
    EXPECT_THAT(generator->load_adapter(folder / "missing").error().message, HasSubstr("adapter_config.json"));
}

TEST_F(GeneratorTest, ThereIsRoomForSoManySequencesAndPositions) {
    const auto generator = make_generator(*network_, {.max_sequences = 2, .max_positions = 20});
    const GenerationRequest nine{.prompt = prompt_of(1, 5), .max_tokens = 4};
    EXPECT_TRUE(generator->has_room(nine));
    const std::uint64_t first = generator->add(nine);
    EXPECT_FALSE(generator->has_room({.prompt = prompt_of(1, 8), .max_tokens = 4}));
    generator->add(nine);
    EXPECT_FALSE(generator->has_room({.prompt = {1}, .max_tokens = 1}));
    generator->remove(first);
    EXPECT_TRUE(generator->has_room({.prompt = {1}, .max_tokens = 1}));
    std::map<std::uint64_t, Answer> answers;
    step(*generator, answers);
    EXPECT_FALSE(answers.contains(first));
}

TEST(GenerationRequests, AreChecked) {
    const auto said = [](const GenerationRequest& request) {
        const Result<void> checked = check_generation_request(request, 61, 20, kLimits);
        return checked ? std::string() : checked.error().message;
    };
    EXPECT_EQ(said({.prompt = {60}, .max_tokens = 19}), "");
    EXPECT_THAT(said({.prompt = {}}), HasSubstr("prompt is empty"));
    EXPECT_THAT(said({.prompt = {1, 61}}), HasSubstr("prompt[1] is 61"));
    EXPECT_THAT(said({.prompt = {-1}}), HasSubstr("prompt[0] is -1"));
    EXPECT_THAT(said({.prompt = {1}, .max_tokens = 20}), HasSubstr("20 positions at most"));
    EXPECT_THAT(said({.prompt = {1}, .max_tokens = 0xFFFFFFFF}), HasSubstr("20 positions at most"));
}

std::vector<double> shares(const std::vector<float>& logprobs, const TokenChoice& choice, int count = 20'000) {
    std::vector<double> drawn(logprobs.size());
    for (int i = 0; i < count; ++i) {
        drawn[static_cast<std::size_t>(draw_token(logprobs, choice, static_cast<std::uint64_t>(i)))] += 1.0 / count;
    }
    return drawn;
}

TEST(DrawToken, TokensComeAsOftenAsTheirProbabilitiesSay) {
    const std::vector<double> p{0.5, 0.2, 0.05, 0.25};
    std::vector<float> logprobs;
    for (const double one : p) {
        logprobs.push_back(static_cast<float>(std::log(one)));
    }
    const auto near = [](std::vector<double> want) {
        std::vector<testing::Matcher<double>> each;
        for (const double one : want) {
            each.push_back(one == 0 ? testing::Matcher<double>(0.0) : testing::DoubleNear(one, 0.015));
        }
        return testing::ElementsAreArray(each);
    };
    EXPECT_THAT(shares(logprobs, {}), near(p));
    EXPECT_THAT(shares(logprobs, {.top_k = 2}), near({2.0 / 3, 0, 0, 1.0 / 3}));
    EXPECT_THAT(shares(logprobs, {.top_p = 0.7}), near({2.0 / 3, 0, 0, 1.0 / 3}));
    EXPECT_THAT(shares(logprobs, {.top_p = 0.001}), near({1, 0, 0, 0}));
    const double sum = 0.25 + 0.04 + 0.0025 + 0.0625;
    EXPECT_THAT(shares(logprobs, {.temperature = 0.5}), near({0.25 / sum, 0.04 / sum, 0.0025 / sum, 0.0625 / sum}));
    EXPECT_THAT(shares(logprobs, {.temperature = 0}), near({1, 0, 0, 0}));
    EXPECT_EQ(draw_token(std::vector<float>{-2, -1, -1}, {.temperature = 0}, 0), 1) << "the first of equal ones";
}

TEST(DrawToken, SeedAnswerAndPositionDecide) {
    const std::vector<float> logprobs(50, std::log(0.02F));
    const auto drawn = [&](std::uint64_t seed, std::uint32_t answer) {
        std::vector<std::int32_t> ids;
        for (std::uint64_t i = 0; i < 20; ++i) {
            ids.push_back(draw_token(logprobs, {.seed = seed, .answer = answer}, i));
        }
        return ids;
    };
    EXPECT_EQ(drawn(1, 0), drawn(1, 0));
    EXPECT_NE(drawn(1, 0), drawn(1, 1));
    EXPECT_NE(drawn(1, 0), drawn(2, 0));
}

}  // namespace
}  // namespace distilld::models
