#include "server/worker/teacher/teacher_vocabulary.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <variant>
#include <vector>

#include "tests/support/fake_teacher.hpp"

namespace distilld {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TokenizerSigns tokenizer(std::string hash, std::uint32_t size = 512, std::string name = "/models/student") {
    TokenizerSigns signs;
    signs.hash = std::move(hash);
    signs.size = size;
    signs.name = std::move(name);
    return signs;
}

class TeacherVocabulary : public testing::Test {
  protected:
    EmitEvent emit() {
        return [this](const WorkerEvent& event) { said_.push_back(std::get<LogEvent>(event).message); };
    }
    std::string tokenizer_refusal(const TokenizerSigns& student, const TokenizerSigns& teacher) {
        const auto checked = check_tokenizer(spec_, "http://t", student, teacher, emit());
        return checked ? std::string() : checked.error().message;
    }
    std::string size_refusal(std::uint64_t known, std::uint32_t vocabulary, const TokenizerSigns& student,
                             const TokenizerSigns& teacher = {}) {
        TeacherInfo info;
        info.kind = TeacherTargets::Kind::logits;
        info.vocabulary_size = known;
        info.tokenizer = teacher;
        const auto checked = check_vocabulary(spec_, student, vocabulary, info, emit());
        return checked ? std::string() : checked.error().message;
    }

    TeacherSpec spec_;
    std::vector<std::string> said_;
};

TEST_F(TeacherVocabulary, TheSameTokenizerNeedsNoWord) {
    EXPECT_EQ(tokenizer_refusal(tokenizer("a"), tokenizer("a")), "");
    EXPECT_THAT(said_, IsEmpty());
}

TEST_F(TeacherVocabulary, AnotherTokenizerIsRefusedUnlessItIsMeant) {
    EXPECT_THAT(tokenizer_refusal(tokenizer("a"), tokenizer("b")),
                AllOf(HasSubstr("/teacher/require_same_tokenizer: the teacher http://t has another tokenizer"),
                      HasSubstr("(/models/student)"), HasSubstr("set this field to false if that is intended")));
    spec_.require_same_tokenizer = false;
    EXPECT_EQ(tokenizer_refusal(tokenizer("a"), tokenizer("b")), "");
    EXPECT_THAT(said_, ElementsAre(HasSubstr("has another tokenizer than the student (/models/student)")));
}

TEST_F(TeacherVocabulary, TheNamedTokenizerOfATeacherIsComparedInPlaceOfTheStudents) {
    spec_.tokenizer = "/models/teacher";
    EXPECT_THAT(tokenizer_refusal(tokenizer("a", 512, "/models/teacher"), tokenizer("b")),
                AllOf(HasSubstr("has another tokenizer than /teacher/tokenizer (/models/teacher)"),
                      HasSubstr("name the folder of the teacher's own tokenizer there")));
}

TEST_F(TeacherVocabulary, OtherTokensTakeTopkRowsOfATeacherThatKnowsThemAll) {
    StoredData data;
    data.alignment = std::make_shared<const TokenAlignment>(TokenTable{}, TokenTable{});
    data.tokenizer = tokenizer("a", 600, "/models/teacher");
    data.vocabulary = 600;
    const auto refusal = [&](TeacherTargets::Kind kind, std::uint64_t known) {
        ConnectedTeacher teacher;
        teacher.source = std::make_unique<test::FakeTeacher>();
        teacher.info.kind = kind;
        teacher.info.vocabulary_size = known;
        const auto fitted = fit_to_student(std::move(teacher), spec_, data, emit());
        return fitted ? std::string() : fitted.error().message;
    };
    EXPECT_EQ(refusal(TeacherTargets::Kind::topk, 600), "");
    EXPECT_EQ(refusal(TeacherTargets::Kind::topk, 640), "") << "its other ids go to the tail";
    EXPECT_EQ(refusal(TeacherTargets::Kind::topk, 0), "");
    EXPECT_THAT(said_, IsEmpty());
    EXPECT_THAT(refusal(TeacherTargets::Kind::logits, 600), HasSubstr("set /teacher/top_k"));
    EXPECT_THAT(refusal(TeacherTargets::Kind::topk, 599),
                AllOf(HasSubstr("/models/teacher has ids up to 599"), HasSubstr("the teacher knows 599 tokens")));
}

TEST_F(TeacherVocabulary, WhatCannotBeComparedIsSaidWithTheReason) {
    EXPECT_EQ(tokenizer_refusal({}, tokenizer("a")), "");
    EXPECT_EQ(tokenizer_refusal(tokenizer("a"), {}), "");
    EXPECT_EQ(tokenizer_refusal(tokenizer("", 0), tokenizer("a")), "");
    EXPECT_THAT(said_, ElementsAre("tokenizers are not compared: the data has ids, and the student has no tokenizer",
                                   "tokenizers are not compared: the teacher does not report its own",
                                   "tokenizers are not compared: the one of /models/student cannot be read here"));
}

TEST_F(TeacherVocabulary, MoreIdsAreTakenForPaddingWhereTheTokenizerIsTheSameOrTheyAreFew) {
    EXPECT_EQ(size_refusal(900, 512, tokenizer("a"), tokenizer("a")), "");
    EXPECT_EQ(size_refusal(528, 512, {}), "");
    EXPECT_THAT(said_, ElementsAre(HasSubstr("the 388 that only the teacher has are cut from its logits"),
                                   HasSubstr("the teacher knows 528 tokens and the student 512: the 16 that")));
    EXPECT_THAT(size_refusal(529, 512, {}),
                HasSubstr("/student: the teacher knows 529 tokens and the student 512, which is more than padding"));
    EXPECT_NE(size_refusal(900, 512, tokenizer("a"), tokenizer("b")), "");
    spec_.require_same_tokenizer = false;
    EXPECT_EQ(size_refusal(900, 512, tokenizer("a"), tokenizer("b")), "");
}

TEST_F(TeacherVocabulary, FewerIdsMustBeAllThatTheTokenizerHas) {
    EXPECT_EQ(size_refusal(512, 1024, tokenizer("a", 512)), "");
    EXPECT_EQ(size_refusal(512, 528, {}), "");
    EXPECT_THAT(said_, ElementsAre(HasSubstr("the 512 that only the student has count as ones of probability 0"),
                                   HasSubstr("the 16 that only the student has")));
    EXPECT_THAT(
        size_refusal(512, 1024, tokenizer("a", 600)),
        AllOf(HasSubstr("the tokenizer /models/student has ids up to 599"), HasSubstr("the teacher knows 512")));
    EXPECT_THAT(size_refusal(512, 1024, {}), HasSubstr("no tokenizer says which of them are in use"));
}

}  // namespace
}  // namespace distilld
