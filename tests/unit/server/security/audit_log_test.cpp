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
        const auto log = open_audit_log(file).value();
        log->write(entry("job-1"));
        log->write({"", "10.0.0.1", "DELETE", "/v1/jobs/\"x\"\n" + std::string(5000, 'a'), 401, "", "req-2"});
    }
    const auto lines = lines_of(file);
    ASSERT_EQ(lines.size(), 2U);
    const auto first = boost::json::parse(lines[0]).as_object();
    EXPECT_EQ(first.at("key"), "alice");
    EXPECT_EQ(first.at("remote"), "127.0.0.1");
    EXPECT_EQ(first.at("method"), "POST");
    EXPECT_EQ(first.at("path"), "/v1/jobs");
    EXPECT_EQ(first.at("status"), 201);
    EXPECT_EQ(first.at("job"), "job-1");
    EXPECT_EQ(first.at("request_id"), "req-1");
    EXPECT_TRUE(first.at("time").is_string());
    const auto second = boost::json::parse(lines[1]).as_object();
    EXPECT_TRUE(second.at("key").is_null());
    EXPECT_TRUE(second.at("job").is_null());
    EXPECT_EQ(second.at("path").as_string().size(), 1024U);
    struct stat there{};
    ASSERT_EQ(::stat(file.c_str(), &there), 0);
    EXPECT_EQ(there.st_mode & 0777U, 0600U);
}

TEST(AuditLog, GoesOnWithTheFileThatIsThereAndBeginsAnotherWhenItIsFull) {
    const test::TemporaryFolder folder;
    const auto file = folder.path() / "audit.jsonl";
    AuditLogOptions options;
    options.file_bytes = 1000;
    options.old_files = 2;
    for (int run = 0; run < 2; ++run) {
        const auto log = open_audit_log(file, options).value();
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
            const auto log = open_audit_log(file, {.file_bytes = 1000, .old_files = kept}).value();
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
    const auto log = open_audit_log("/nonexistent/audit.jsonl");
    ASSERT_FALSE(log.has_value());
    EXPECT_THAT(log.error().message, ::testing::HasSubstr("/nonexistent/audit.jsonl: cannot open"));
}

}  // namespace
}  // namespace distilld
