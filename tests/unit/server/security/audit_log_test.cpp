#include "server/security/audit_log.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <boost/json/parse.hpp>
#include <fstream>
#include <string>
#include <vector>

#include "tests/support/temporary_folder.hpp"

namespace distilld {
namespace {

std::vector<std::string> lines_of(const std::filesystem::path& path) {
    std::vector<std::string> lines;
    std::ifstream in(path);
    for (std::string line; std::getline(in, line);) {
        lines.push_back(line);
    }
    return lines;
}

AuditEntry entry(const std::string& job) {
    return {"alice", "127.0.0.1", "POST", "/v1/jobs", 201, job, "req-1"};
}

TEST(AuditLog, WritesALineEachForItsOwnerAlone) {
    const test::TemporaryFolder folder;
    const auto file = folder.path() / "audit.jsonl";
    {
        const auto log = open_audit_log(folder.path()).value();
        log->write(entry("job-1"));
        log->write({"", "10.0.0.1", "DELETE", "/v1/jobs/\"x\"\n" + std::string(5000, 'a'), 401, "", "req-2"});
    }
    const auto lines = lines_of(file);
    ASSERT_EQ(lines.size(), 1U);
    const auto refused = lines_of(folder.path() / "audit-refused.jsonl");
    ASSERT_EQ(refused.size(), 1U);
    const auto first = boost::json::parse(lines[0]).as_object();
    EXPECT_EQ(first.at("key"), "alice");
    EXPECT_EQ(first.at("remote"), "127.0.0.1");
    EXPECT_EQ(first.at("method"), "POST");
    EXPECT_EQ(first.at("path"), "/v1/jobs");
    EXPECT_EQ(first.at("status"), 201);
    EXPECT_EQ(first.at("job"), "job-1");
    EXPECT_EQ(first.at("request_id"), "req-1");
    EXPECT_TRUE(first.at("time").is_string());
    const auto second = boost::json::parse(refused[0]).as_object();
    EXPECT_TRUE(second.at("key").is_null());
    EXPECT_TRUE(second.at("job").is_null());
    EXPECT_EQ(second.at("path").as_string().size(), 1024U);
    struct stat there{};
    ASSERT_EQ(::stat(file.c_str(), &there), 0);
    EXPECT_EQ(there.st_mode & 0777U, 0600U);
}

TEST(AuditLog, F7CutsEachText) {
    const test::TemporaryFolder folder;
    const std::string text(31'000, 'a');
    open_audit_log(folder.path()).value()->write({text, text, text, text + "\xff", 200, text, text});
    const auto lines = lines_of(folder.path() / "audit.jsonl");
    ASSERT_EQ(lines.size(), 1U);
    EXPECT_LT(lines[0].size(), 2000U);
    EXPECT_EQ(boost::json::parse(lines[0]).at("job").as_string().size(), 128U);
}

TEST(AuditLog, F7RefusedRequestsPushOutNoChangeAndAreBounded) {
    const test::TemporaryFolder folder;
    AuditLogOptions options;
    options.file_bytes = 1000;
    options.old_files = 1;
    {
        const auto log = open_audit_log(folder.path(), options).value();
        log->write(entry("job-1"));
        for (int i = 0; i < 3000; ++i) {
            log->write({"", "10.0.0.1", "POST", "/v1/jobs/x/cancel", 401, std::string(31'000, 'a'), ""});
        }
        log->write({"", "10.0.0.2", "POST", "/v1/jobs", 400, "", "other"});
    }
    EXPECT_EQ(lines_of(folder.path() / "audit.jsonl").size(), 1U);
    auto refused = lines_of(folder.path() / "audit-refused.jsonl.1");
    for (auto& line : lines_of(folder.path() / "audit-refused.jsonl")) {
        refused.push_back(std::move(line));
    }
    ASSERT_GE(refused.size(), 2U);
    EXPECT_EQ(boost::json::parse(refused[refused.size() - 2]).at("request_id"), "other") << "who is loud hides nobody";
    const auto rest = boost::json::parse(refused.back());
    EXPECT_EQ(rest.at("remote"), "10.0.0.1");
    // One a second is written beside those at once, and nobody says how long this takes.
    EXPECT_GT(rest.at("more").to_number<int>(), 2000);
    EXPECT_EQ(test::file_count(folder.path()), 3U) << "the changes, and the last two files of what was refused";
}

TEST(AuditLog, F7WhatMayHaveChangedSomethingIsNoRefusal) {
    const test::TemporaryFolder folder;
    {
        const auto log = open_audit_log(folder.path()).value();
        for (const auto& [key, status] : std::vector<std::pair<const char*, unsigned>>{
                 {"", 201}, {"alice", 499}, {"", 499}, {"alice", 503}, {"", 503}, {"alice", 400}, {"", 401}}) {
            log->write({key, "127.0.0.1", "POST", "/v1/jobs", status, "", ""});
        }
    }
    EXPECT_EQ(lines_of(folder.path() / "audit.jsonl").size(), 4U);
    EXPECT_EQ(lines_of(folder.path() / "audit-refused.jsonl").size(), 3U);
}

TEST(AuditLog, GoesOnWithTheFileThatIsThereAndBeginsAnotherWhenItIsFull) {
    const test::TemporaryFolder folder;
    const auto file = folder.path() / "audit.jsonl";
    AuditLogOptions options;
    options.file_bytes = 1000;
    options.old_files = 2;
    for (int run = 0; run < 2; ++run) {
        const auto log = open_audit_log(folder.path(), options).value();
        for (int i = 0; i < 20; ++i) {
            log->write(entry("job-" + std::to_string(run) + "-" + std::to_string(i)));
        }
    }
    std::vector<std::string> all;
    for (const char* name : {"audit.jsonl.2", "audit.jsonl.1", "audit.jsonl"}) {
        const auto part = lines_of(folder.path() / name);
        EXPECT_FALSE(part.empty()) << name;
        EXPECT_LE(std::filesystem::file_size(folder.path() / name), options.file_bytes);
        all.insert(all.end(), part.begin(), part.end());
    }
    EXPECT_FALSE(std::filesystem::exists(folder.path() / "audit.jsonl.3"));
    // The newest, in order and without a hole.
    ASSERT_GE(all.size(), 4U);
    for (std::size_t i = 0; i < all.size(); ++i) {
        const auto job = boost::json::parse(all[all.size() - 1 - i]).at("job").as_string();
        const std::size_t number = 39 - i;
        EXPECT_EQ(job, "job-" + std::to_string(number / 20) + "-" + std::to_string(number % 20));
    }
}

TEST(AuditLog, KeepsAsManyFullFilesAsItIsTold) {
    const test::TemporaryFolder folder;
    const auto file = folder.path() / "audit.jsonl";
    for (const std::uint32_t kept : {3U, 1U, 0U}) {
        {
            const auto log = open_audit_log(folder.path(), {.file_bytes = 1000, .old_files = kept}).value();
            for (int i = 0; i < 30; ++i) {
                log->write(entry("job-" + std::to_string(i)));
            }
        }
        EXPECT_EQ(test::file_count(folder.path()), kept + 1)
            << "those of the run before go with the first that is full";
        const auto last = boost::json::parse(lines_of(file).back());
        EXPECT_EQ(last.at("job"), "job-29") << kept;
    }
}

TEST(AuditLog, NamesAFileThatCannotBeOpened) {
    const auto log = open_audit_log("/nonexistent");
    ASSERT_FALSE(log.has_value());
    EXPECT_THAT(log.error().message, ::testing::HasSubstr("/nonexistent/audit.jsonl: cannot open"));
}

}  // namespace
}  // namespace distilld
