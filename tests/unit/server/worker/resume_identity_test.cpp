#include "server/worker/resume_identity.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <boost/json/parse.hpp>

#include "base/json_text.hpp"
#include "tests/unit/api/spec_samples.hpp"

namespace distilld {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

JobSpec spec_of_a_run() {
    JobSpec spec;
    spec.student.model = "student";
    spec.student.dtype = Dtype::bf16;
    spec.student.lora.emplace();
    spec.placement.emplace();
    spec.rollout.emplace();
    spec.dataset.train = {"data.jsonl"};
    spec.dataset.sequence_length = 8;
    spec.teachers[""].endpoints = {"http://teacher:1"};
    spec.training.max_steps = 10;
    spec.training.threads = 2;
    spec.output = "out";
    spec.training.replicas_auto = false;
    return spec;
}

std::string refusal(const JobSpec& spec, const std::string& hash = "hash") {
    const Result<void> same = check_run_identity(make_run_identity(spec_of_a_run(), "hash"), spec, hash);
    return same ? "" : same.error().message;
}

TEST(ResumeIdentity, TheSameRunGoesOn) {
    EXPECT_EQ(refusal(spec_of_a_run()), "");
    EXPECT_THAT(last_bits_warnings(make_run_identity(spec_of_a_run(), "hash"), spec_of_a_run()), IsEmpty());
}

TEST(ResumeIdentity, F2NoQueryOfAUrlIsWrittenDown) {
    JobSpec spec = spec_of_a_run();
    spec.teacher()->endpoints = {"http://teacher:1/v1?key=s3cret"};
    spec.metrics.mlflow_url = "http://mlflow:2?token=s3cret";
    spec.metrics.otlp_url = "http://collector:3?token=s3cret";
    TeacherSpec other;
    other.endpoints = {"http://other:1/v1?key=s3cret"};
    spec.teachers["b"] = other;
    const std::string identity = make_run_identity(spec, "hash");
    EXPECT_THAT(identity, HasSubstr("http://teacher:1/v1?…"));
    EXPECT_THAT(identity, Not(HasSubstr("s3cret")));
    EXPECT_TRUE(check_run_identity(identity, spec, "hash"));
}

TEST(ResumeIdentity, ARunMayBeProlongedAndMoved) {
    JobSpec spec = spec_of_a_run();
    spec.training.max_steps = 20;
    spec.output = "elsewhere";
    spec.training.overlap_optimizer = false;
    EXPECT_EQ(refusal(spec), "");
}

TEST(ResumeIdentity, AnotherDatasetIsRefused) {
    EXPECT_THAT(refusal(spec_of_a_run(), "other"),
                StartsWith("/dataset/train: not the dataset that the checkpoint was trained on (SHA-256 of its rows "
                           "other, in the checkpoint \"hash\")"));
    for (const auto* identity : {"no JSON", "[]", "{}", R"({"dataset_sha256":"hash"})"}) {
        EXPECT_NE(check_run_identity(identity, spec_of_a_run(), "hash").error().message, "") << identity;
    }
}

class EachField : public ::testing::TestWithParam<api::SpecField> {};

/// The identity of the run with another value of the field, written by hand: also one that no spec could have.
std::string identity_with(const api::SpecField& field, const boost::json::value& value) {
    auto identity = boost::json::parse(make_run_identity(spec_of_a_run(), "hash"));
    auto& spec = identity.at("spec");
    auto& object = spec.at_pointer(field.section());
    object.as_object()[field.name()] = value;
    return to_text(identity);
}

TEST_P(EachField, IsRefusedOrNotAsItsRowSays) {
    const auto& field = GetParam();
    const auto value = test::other_value(field).value_or(0.5);
    const auto now = spec_of_a_run();
    const auto then = identity_with(field, value);
    const auto same = check_run_identity(then, now, "hash");
    const auto warnings = last_bits_warnings(then, now);
    if (field.decides_weights == api::DecidesWeights::yes) {
        ASSERT_FALSE(same) << field.pointer;
        EXPECT_THAT(same.error().message, StartsWith(std::string(field.pointer) + ": is "));
        EXPECT_THAT(same.error().message, HasSubstr("made with " + to_text(value) + "; weights depend on it"));
    } else {
        EXPECT_TRUE(same) << same.error().message;
    }
    const auto first = check_first_weights(then, now);
    if (field.decides_weights == api::DecidesWeights::first_weights) {
        ASSERT_FALSE(first) << field.pointer;
        EXPECT_THAT(first.error().message, StartsWith(std::string(field.pointer) + ": is "));
    } else {
        EXPECT_TRUE(first) << first.error().message;
    }
    if (field.decides_weights == api::DecidesWeights::last_bits) {
        EXPECT_THAT(warnings, ElementsAre(StartsWith(std::string(field.pointer) + ": is ")));
    } else {
        EXPECT_THAT(warnings, IsEmpty());
    }
}

TEST_P(EachField, CountsAsItIsSetInTheSpec) {
    const auto& field = GetParam();
    const auto value = test::other_value(field);
    if (!value) {
        return;  // no spec can have another value
    }
    JobSpec spec = spec_of_a_run();
    std::vector<api::Violation> violations;
    ASSERT_TRUE(field.kind.read(*value, spec, {field.pointer, violations}));
    const bool decides = field.decides_weights == api::DecidesWeights::yes;
    EXPECT_THAT(refusal(spec), decides ? StartsWith(std::string(field.pointer) + ": is ") : StartsWith(""));
    EXPECT_EQ(refusal(spec).empty(), !decides);
}

std::string test_name(const ::testing::TestParamInfo<api::SpecField>& info) {
    std::string name(info.param.pointer.substr(1));
    std::replace(name.begin(), name.end(), '/', '_');
    return name;
}

INSTANTIATE_TEST_SUITE_P(ResumeIdentity, EachField, ::testing::ValuesIn(api::spec_table().fields), test_name);

TEST(ResumeIdentity, WhatDecidesWeightsIsWhatTheUpdatesAreMadeOf) {
    // Written out once, so that a row does not change its answer by an oversight.
    std::vector<std::string_view> deciding;
    for (const auto& field : api::spec_table().fields) {
        if (field.decides_weights == api::DecidesWeights::yes) {
            deciding.push_back(field.pointer);
        }
    }
    EXPECT_THAT(
        deciding,
        ElementsAre("/student/format", "/student/inputs", "/student/outputs", "/student/dtype", "/student/quantization",
                    "/student/quantize_modules", "/student/lora/r", "/student/lora/alpha", "/student/lora/dropout",
                    "/student/lora/target_modules", "/teacher/tokenizer", "/teacher/inputs", "/teacher/outputs",
                    "/teacher/protocol", "/teacher/top_k", "/teacher/targets", "/teacher/store_format",
                    "/teacher/store_values", "/teacher/store_p", "/teacher/store_samples", "/dataset/format",
                    "/dataset/sequence_length", "/dataset/packing", "/dataset/completion_only_loss", "/dataset/shuffle",
                    "/dataset/shuffle_block_rows", "/rollout/max_prompt_tokens", "/rollout/max_tokens",
                    "/rollout/temperature", "/rollout/top_p", "/rollout/lmbda", "/rollout/staleness",
                    "/training/batch_size", "/training/micro_batches", "/training/learning_rate",
                    "/training/lr_scheduler_type", "/training/warmup_steps", "/training/warmup_ratio",
                    "/training/weight_decay", "/training/max_grad_norm", "/training/adam_beta1", "/training/adam_beta2",
                    "/training/adam_epsilon", "/training/optimizer", "/training/sgd_momentum", "/training/temperature",
                    "/training/kd_ratio", "/training/beta", "/training/losses", "/training/seed"));
}

TEST(ResumeIdentity, AMadeUpFieldCounts) {
    const auto table = test::grown_table();
    test::GrownSpec spec;
    static_cast<JobSpec&>(spec) = spec_of_a_run();
    const auto identity = make_run_identity(spec, "hash", table);
    EXPECT_TRUE(check_run_identity(identity, spec, "hash", table));
    spec.word_list = "elsewhere";
    EXPECT_TRUE(check_run_identity(identity, spec, "hash", table));
    spec.label_smoothing = 0.25;
    EXPECT_THAT(check_run_identity(identity, spec, "hash", table).error().message,
                StartsWith("/training/label_smoothing: is 0.25, but the checkpoint was made with 0.125;"));
}

TEST(ResumeIdentity, ACheckpointMayBeOlderThanAField) {
    const auto table = test::grown_table();
    test::GrownSpec spec;
    static_cast<JobSpec&>(spec) = spec_of_a_run();
    const auto identity = make_run_identity(spec, "hash");
    EXPECT_TRUE(check_run_identity(identity, spec, "hash", table)) << "the default is what was done then";
    spec.label_smoothing = 0.25;
    EXPECT_FALSE(check_run_identity(identity, spec, "hash", table));
}

TEST(ResumeIdentity, ATeacherThatWasNotThereIsRefused) {
    JobSpec plain = spec_of_a_run();
    plain.teachers.erase("");
    JobSpec taught = spec_of_a_run();
    taught.training.kd_ratio = 0;
    EXPECT_THAT(check_run_identity(make_run_identity(plain, "hash"), taught, "hash").error().message,
                StartsWith("/teacher/protocol: is \"kserve\", but the checkpoint was made without it;"));
}

TEST(ResumeIdentity, AdaptersThatWereNotThereAreRefused) {
    JobSpec spec = spec_of_a_run();
    spec.student.lora.reset();
    EXPECT_THAT(refusal(spec), StartsWith("/student/lora/r: is not set, but the checkpoint was made with 8;"));
}

TEST(ResumeIdentity, AnotherNumberOfThreadsIsSaid) {
    JobSpec spec = spec_of_a_run();
    const std::string identity = make_run_identity(spec, "hash");
    spec.training.threads = 4;
    spec.student.device = "cpu";
    EXPECT_EQ(refusal(spec), "") << "no reason to refuse";
    EXPECT_THAT(last_bits_warnings(identity, spec),
                ElementsAre(StartsWith("/student/device: is \"cpu\", but the checkpoint was made with \"auto\""),
                            StartsWith("/training/threads: is 4, but the checkpoint was made with 2: weights will")));
}

TEST(ResumeIdentity, AnotherArithmeticIsRefusedUnlessTheCheckpointDoesNotSay) {
    JobSpec spec = spec_of_a_run();
    spec.student.dtype = Dtype::fp32;
    EXPECT_THAT(refusal(spec), StartsWith("/student/dtype: is \"fp32\", but the checkpoint was made with \"bf16\""));
    JobSpec old = spec_of_a_run();
    old.student.dtype = Dtype::auto_select;
    EXPECT_TRUE(check_run_identity(make_run_identity(old, "hash"), spec, "hash"));
}

TEST(ResumeIdentity, ASpecThatLeavesTheArithmeticOpenTakesTheCheckpoints) {
    JobSpec spec = spec_of_a_run();
    const std::string in_bf16 = make_run_identity(spec, "hash");
    EXPECT_EQ(dataset_of(in_bf16), "hash");
    spec.student.dtype = Dtype::auto_select;
    adopt_decisions(in_bf16, spec);
    EXPECT_EQ(spec.student.dtype, Dtype::bf16);
    spec.student.dtype = Dtype::fp32;
    adopt_decisions(in_bf16, spec);
    EXPECT_EQ(spec.student.dtype, Dtype::fp32) << "it was said";
}

TEST(ResumeIdentity, SoDoesATeacherInTheProcess) {
    JobSpec open = spec_of_a_run();
    open.teacher()->endpoints.clear();
    open.teacher()->model_dir = "teacher";
    const auto adopted = [](const JobSpec& then, JobSpec now) {
        adopt_decisions(make_run_identity(then, "hash"), now);
        EXPECT_TRUE(check_run_identity(make_run_identity(then, "hash"), now, "hash"));
        return now.teacher()->dtype;
    };
    for (const Dtype began_with : {Dtype::fp32, Dtype::bf16}) {
        JobSpec then = open;
        then.teacher()->dtype = began_with;
        EXPECT_EQ(adopted(then, open), began_with);
    }
    EXPECT_EQ(adopted(open, open), Dtype::auto_select) << "a checkpoint of an earlier version does not say";
    EXPECT_EQ(adopted(spec_of_a_run(), open), Dtype::auto_select) << "it was asked over the wire then";
    JobSpec in_bf16 = open;
    in_bf16.teacher()->dtype = Dtype::bf16;
    EXPECT_EQ(adopted(in_bf16, spec_of_a_run()), Dtype::auto_select) << "nor does an endpoint say now";
    JobSpec said = open;
    said.teacher()->dtype = Dtype::fp32;
    EXPECT_EQ(adopted(in_bf16, said), Dtype::fp32) << "it was said";
}

TEST(ResumeIdentity, AnotherLibtorchIsSaid) {
    const JobSpec spec = spec_of_a_run();
    const std::string identity = make_run_identity(spec, "hash", api::spec_table(), {"2.8.0"});
    EXPECT_TRUE(check_run_identity(identity, spec, "hash"));
    EXPECT_THAT(last_bits_warnings(identity, spec, api::spec_table(), {"2.8.0"}), IsEmpty());
    EXPECT_THAT(
        last_bits_warnings(identity, spec, api::spec_table(), {"2.9.1"}),
        ElementsAre(StartsWith("this is libtorch 2.9.1, but the checkpoint was made with 2.8.0: weights will")));
    EXPECT_THAT(last_bits_warnings(make_run_identity(spec, "hash"), spec, api::spec_table(), {"2.9.1"}), IsEmpty())
        << "it does not say";
}

TEST(ResumeIdentity, AnotherTeacherIsRefusedWhereItIsCertain) {
    const std::string fox = "[[[1,-0.5],[2,-1.5]]]";
    const std::string hen = "[[[3,-0.5],[4,-1.5]]]";
    JobSpec spec = spec_of_a_run();
    const auto told = [&spec](const RunEnvironment& then, const RunEnvironment& now) {
        return check_teacher(make_run_identity(spec, "hash", api::spec_table(), then), spec, now);
    };
    const auto with = [](const std::string& fingerprint, bool deterministic = true) {
        RunEnvironment made;
        made.teachers[""] = {fingerprint, deterministic};
        return made;
    };
    EXPECT_EQ(told(with(fox), with(fox)).value(), "");
    EXPECT_EQ(told({}, with(fox)).value(), "") << "the checkpoint does not say";
    EXPECT_EQ(told(with(fox), {}).value(), "") << "nobody was asked";
    EXPECT_EQ(told(with(fox), with("")).value(), "") << "it is not known who was asked";
    const auto refused = told(with(fox), with(hen));
    ASSERT_FALSE(refused);
    EXPECT_THAT(refused.error().message, StartsWith("/teacher/endpoints: the teacher is not the one"));
    EXPECT_THAT(told(with(fox, false), with(hen)).value(), StartsWith("/teacher/endpoints"));
    EXPECT_THAT(told(with(fox), with(hen, false)).value(), StartsWith("/teacher/endpoints"));
    spec.overwrite = true;
    EXPECT_THAT(told(with(fox), with(hen)).value(), StartsWith("/teacher/endpoints"));
    spec.teacher()->model_dir = "hen";
    EXPECT_THAT(told(with(fox), with(hen)).value(), StartsWith("/teacher/model_dir: the teacher is not the one"));
}

TEST(ResumeIdentity, TheProbedBatchSizeIsTakenOver) {
    JobSpec spec = spec_of_a_run();
    spec.training.batch_size = 16;
    const std::string identity = make_run_identity(spec, "hash");
    spec.training.batch_size = 1;
    spec.training.batch_size_auto = true;
    adopt_decisions(identity, spec);
    EXPECT_EQ(spec.training.batch_size, 16U);
    EXPECT_FALSE(spec.training.batch_size_auto);
}

TEST(ResumeIdentity, TheAutomaticMicroBatchesMakeUpTheSameSteps) {
    JobSpec run = spec_of_a_run();
    run.training.batch_size = 4;
    run.training.micro_batches = 8;
    RunEnvironment cut;
    cut.planned_batch_size = 16;  // a worker was out of memory
    const std::string identity = make_run_identity(run, "hash", api::spec_table(), cut);
    JobSpec open = run;
    open.training.batch_size_auto = open.training.micro_batches_auto = true;
    JobSpec fixed = run;
    fixed.training.batch_size = 2;
    fixed.training.micro_batches_auto = true;
    adopt_decisions(identity, open);
    adopt_decisions(identity, fixed);
    EXPECT_EQ(open.training.batch_size, 16U);
    EXPECT_EQ(open.training.micro_batches, 2U);
    EXPECT_EQ(fixed.training.micro_batches, 16U);
    EXPECT_FALSE(open.training.micro_batches_auto || fixed.training.micro_batches_auto);
    EXPECT_TRUE(check_run_identity(identity, open, "hash"));
}

TEST(ResumeIdentity, OtherRowsBecauseOfLongDocumentsAreSaidToBe) {
    JobSpec spec = spec_of_a_run();
    spec.dataset.packing = Packing::documents;
    const std::string older = make_run_identity(spec, "hash");
    spec.dataset.overflow = Overflow::split;
    EXPECT_TRUE(check_run_identity(older, spec, "hash")) << "no document was too long";
    EXPECT_THAT(check_run_identity(older, spec, "other").error().message,
                StartsWith("/dataset/overflow: is split, but the checkpoint was made with truncate;"));
    EXPECT_THAT(check_run_identity(make_run_identity(spec, "hash"), spec, "other").error().message,
                StartsWith("/dataset/train: not the dataset"));
}

TEST(ResumeIdentity, SaysWhetherStepsEndWithTheirEpoch) {
    const JobSpec spec = spec_of_a_run();
    RunEnvironment ending;
    ending.ends_epochs = true;
    EXPECT_TRUE(ended_epochs(make_run_identity(spec, "hash", api::spec_table(), ending)));
    EXPECT_FALSE(ended_epochs(make_run_identity(spec, "hash")));
    EXPECT_EQ(make_run_identity(spec, "hash").find("ends_epochs"), std::string::npos) << "as earlier versions wrote it";
}

TEST(ResumeIdentity, ARunKeepsWhatItsTeacherSends) {
    JobSpec spec = spec_of_a_run();
    const auto adopted = [](const std::string& identity, JobSpec now) {
        adopt_decisions(identity, now);
        EXPECT_TRUE(check_run_identity(identity, now, "hash"));
        return now.teacher()->targets;
    };
    const auto old = make_run_identity(spec, "hash");  // as if it did not know the field
    EXPECT_EQ(adopted(old, spec), TargetsChoice::logits);
    spec.teacher()->top_k = 4;
    EXPECT_EQ(adopted(make_run_identity(spec, "hash"), spec), TargetsChoice::topk);
    spec.teacher()->top_k = 0;
    JobSpec hidden = spec;
    hidden.teacher()->targets = TargetsChoice::hidden;
    EXPECT_EQ(adopted(make_run_identity(hidden, "hash"), spec), TargetsChoice::hidden);
    // Who names it must name the same.
    adopt_decisions(old, hidden);
    EXPECT_EQ(hidden.teacher()->targets, TargetsChoice::hidden);
    EXPECT_THAT(check_run_identity(old, hidden, "hash").error().message,
                StartsWith("/teacher/targets: is \"hidden\", but the checkpoint was made with \"logits\";"));
    spec.teacher()->targets = TargetsChoice::logits;
    EXPECT_TRUE(check_run_identity(old, spec, "hash"));
}

TEST(ResumeIdentity, SaysWhetherRowsWereTakenByTheirLengths) {
    RunEnvironment environment;
    EXPECT_FALSE(rows_were_by_length(make_run_identity(spec_of_a_run(), "hash", api::spec_table(), environment)))
        << "as checkpoints of earlier versions, which did not say";
    environment.rows_by_length = true;
    EXPECT_TRUE(rows_were_by_length(make_run_identity(spec_of_a_run(), "hash", api::spec_table(), environment)));
    EXPECT_FALSE(rows_were_by_length("no JSON"));
}

/// Of a run that began with micro-batches of 8 rows, two to a step, and goes on with these.
JobSpec split_into(std::uint32_t batch_size, std::uint32_t micro_batches) {
    JobSpec spec = spec_of_a_run();
    spec.training.batch_size = batch_size;
    spec.training.micro_batches = micro_batches;
    return spec;
}

TEST(ResumeIdentity, StepsMayBeCutIntoSmallerMicroBatches) {
    const auto began = make_run_identity(split_into(8, 2), "hash");
    EXPECT_EQ(planned_batch_size(began), 8U);
    for (const auto& smaller : {split_into(4, 4), split_into(2, 8), split_into(1, 16)}) {
        EXPECT_TRUE(check_run_identity(began, smaller, "hash"));
        EXPECT_THAT(last_bits_warnings(began, smaller), ElementsAre(StartsWith("/training/batch_size: is ")));
    }
    EXPECT_THAT(last_bits_warnings(began, split_into(8, 2)), IsEmpty());
    // A checkpoint of the smaller ones remembers what it began with, and a run may go back to that.
    RunEnvironment environment;
    environment.planned_batch_size = 8;
    const auto halved = make_run_identity(split_into(4, 4), "hash", api::spec_table(), environment);
    EXPECT_EQ(planned_batch_size(halved), 8U);
    EXPECT_TRUE(check_run_identity(halved, split_into(8, 2), "hash"));
    EXPECT_TRUE(check_run_identity(halved, split_into(1, 16), "hash"));
    // One that never had a checkpoint of what its spec says goes on with that all the same.
    EXPECT_TRUE(check_run_identity(began, split_into(16, 1), "hash"));
    EXPECT_THAT(last_bits_warnings(began, split_into(16, 1)), ElementsAre(StartsWith("/training/batch_size: is 16")));
    JobSpec open = split_into(1, 2);
    open.training.batch_size_auto = true;
    adopt_decisions(halved, open);
    EXPECT_TRUE(check_run_identity(halved, open, "hash")) << "auto is what the run began with";
}

TEST(ResumeIdentity, OtherStepsAreRefused) {
    const auto began = make_run_identity(split_into(8, 2), "hash");
    for (const auto& [other, field] : {std::pair(split_into(4, 2), "/training/batch_size: is 4"),
                                       std::pair(split_into(8, 4), "/training/micro_batches"),
                                       std::pair(split_into(4, 8), "/training/batch_size")}) {
        const auto same = check_run_identity(began, other, "hash");
        ASSERT_FALSE(same) << other.training.batch_size << " x " << other.training.micro_batches;
        EXPECT_THAT(same.error().message, StartsWith(field));
    }
    const auto odd = make_run_identity(split_into(12, 2), "hash");
    EXPECT_TRUE(check_run_identity(odd, split_into(3, 8), "hash"));
    EXPECT_FALSE(check_run_identity(odd, split_into(4, 6), "hash")) << "nothing cuts into three";
}

}  // namespace
}  // namespace distilld
