// RequestFramer: what is a request, what is not, and that cutting the bytes changes nothing.
#include "service/http/request_framer.h"
#include "tests/support/catch.h"

namespace tandem::service {
namespace {

struct Outcome {
  RequestFramer::State state = RequestFramer::State::head;
  int status = 0;
  std::string code;
  std::string body;
  size_t taken = 0;

  bool operator==(const Outcome&) const = default;
};

Outcome frame(std::string_view bytes, size_t piece, const FramerLimits& limits = {}) {
  RequestFramer framer(limits);
  Outcome outcome;
  while (outcome.taken < bytes.size()) {
    std::string_view part = bytes.substr(outcome.taken, piece);
    const size_t taken = framer.feed(part);
    outcome.taken += taken;
    if (framer.state() == RequestFramer::State::head_complete) framer.accept_body();
    if (framer.state() == RequestFramer::State::complete ||
        framer.state() == RequestFramer::State::failed) {
      break;
    }
  }
  outcome.state = framer.state();
  outcome.status = framer.state() == RequestFramer::State::failed ? framer.error().status : 0;
  outcome.code = framer.error().code;
  outcome.body = framer.body();
  return outcome;
}

// The same answer for the whole text and for every size of piece.
Outcome frame_all_ways(std::string_view bytes, const FramerLimits& limits = {}) {
  const Outcome whole = frame(bytes, bytes.size(), limits);
  for (const size_t piece : {size_t{1}, size_t{2}, size_t{3}, size_t{7}, size_t{64}}) {
    CAPTURE(piece, bytes.substr(0, 80));
    CHECK(frame(bytes, piece, limits) == whole);
  }
  return whole;
}

RequestHead head_of(std::string_view bytes) {
  RequestFramer framer({});
  framer.feed(bytes);
  REQUIRE(framer.state() == RequestFramer::State::head_complete);
  return framer.take_head();
}

struct Bad {
  const char* bytes;
  int status;
};

}  // namespace

TEST_CASE("framer: a plain request, and the next one is left alone") {
  const std::string bytes =
      "POST /a%20b?x=1 HTTP/1.1\r\nHost: Box:80\r\nX-Y:\t v \r\nContent-Length: 5\r\n\r\nhelloGET";
  const Outcome outcome = frame_all_ways(bytes);
  CHECK(outcome.state == RequestFramer::State::complete);
  CHECK(outcome.body == "hello");
  CHECK(outcome.taken == bytes.size() - 3);
  const RequestHead head = head_of(bytes);
  CHECK(head.method == "POST");
  CHECK(head.path == "/a b");
  CHECK(head.query == "x=1");
  CHECK(head.authority == "box:80");
  CHECK(head.header("x-y") == "v");
  CHECK(head.keep_alive);
}

TEST_CASE("framer: forms of the target and of the version") {
  CHECK(head_of("GET http://Other:9/p?q HTTP/1.1\r\nHost: x\r\n\r\n").authority == "other:9");
  CHECK(head_of("GET http://Other:9/p?q HTTP/1.1\r\nHost: x\r\n\r\n").path == "/p");
  CHECK(head_of("GET https://o HTTP/1.1\r\nHost: x\r\n\r\n").path == "/");
  CHECK(head_of("OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n").path == "*");
  CHECK(head_of("\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n").path == "/");
  CHECK_FALSE(head_of("GET / HTTP/1.0\r\n\r\n").keep_alive);
  CHECK_FALSE(head_of("GET / HTTP/1.1\r\nHost: x\r\nConnection: Foo, Close\r\n\r\n").keep_alive);
  CHECK(head_of("POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-Continue\r\n\r\n").expects_continue);
  CHECK_FALSE(head_of("POST / HTTP/1.0\r\nExpect: 100-continue\r\n\r\n").expects_continue);
}

TEST_CASE("framer: a chunked body is decoded, trailers are dropped") {
  const Outcome outcome = frame_all_ways(
      "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: Chunked\r\n\r\n"
      "5;ext=\"a\"\r\nhello\r\n00A\r\n0123456789\r\n0\r\nX-T: 1\r\n\r\nNEXT");
  CHECK(outcome.state == RequestFramer::State::complete);
  CHECK(outcome.body == "hello0123456789");
}

TEST_CASE("framer: what two readers could understand differently is refused") {
  const Bad cases[] = {
      {"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 3, 3\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: +3\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 0x10\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nHost: x\r\nContent-Length:\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: identity\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: "
       "chunked\r\n\r\n",
       400},
      {"GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding : chunked\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nHost: x\r\n folded\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nHost: x\r\n\tfolded\r\n\r\n", 400},
      {"GET / HTTP/1.1\nHost: x\n\n", 400},
      {"GET / HTTP/1.1\r\nHost: x\nA: b\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nHost: x\r\nA: b\rc\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nHost: x\r\nA: b\x01\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nHost: x\r\nA: b\x7f\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nHost: x\r\nA b: c\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nHost: x\r\n: c\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nHost: x\r\nnothing\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", 400},
      {"GET  / HTTP/1.1\r\nHost: x\r\n\r\n", 400},
      {"GET / HTTP/1.1 \r\nHost: x\r\n\r\n", 400},
      {"GET /\r\n\r\n", 400},
      {"GET / http/1.1\r\nHost: x\r\n\r\n", 400},
      {"GET / HTTP/2.0\r\nHost: x\r\n\r\n", 400},
      {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400},
      {"GET foo HTTP/1.1\r\nHost: x\r\n\r\n", 400},
      {"GET * HTTP/1.1\r\nHost: x\r\n\r\n", 400},
      {"GET /%zz HTTP/1.1\r\nHost: x\r\n\r\n", 400},
      {"GET /%0d%0a HTTP/1.1\r\nHost: x\r\n\r\n", 400},
      {"GET /%00 HTTP/1.1\r\nHost: x\r\n\r\n", 400},
      {"GET /% HTTP/1.1\r\nHost: x\r\n\r\n", 400},
      {"GET /\xc3\xa9 HTTP/1.1\r\nHost: x\r\n\r\n", 400},
      {"G(T / HTTP/1.1\r\nHost: x\r\n\r\n", 400},
      {"AVERYLONGMETHODNAME / HTTP/1.1\r\nHost: x\r\n\r\n", 400},
      {"\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nHost: x\r\nExpect: a-cookie\r\n\r\n", 417},
      {"\x16\x03\x01\x02", 400},
  };
  for (const Bad& bad : cases) {
    CAPTURE(bad.bytes);
    const Outcome outcome = frame_all_ways(bad.bytes);
    CHECK(outcome.state == RequestFramer::State::failed);
    CHECK(outcome.status == bad.status);
  }
  const std::string nul("GET / HTTP/1.1\r\nHost: x\r\nA: b\0c\r\n\r\n", 38);
  CHECK(frame_all_ways(nul).status == 400);
}

TEST_CASE("framer: bad chunks") {
  const std::string head = "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (const char* chunks :
       {"g\r\n", "\r\n", "-1\r\n", "0x5\r\nhello\r\n", "5 \r\nhello\r\n", "5\nhello\r\n",
        "5\r\nhelloX\r\n", "5\r\nhello\n", "1000000000000000\r\n", "ffffffffffffffff\r\n",
        "0\r\nno colon\r\n\r\n", "0\r\nA : b\r\n\r\n", "5\r\rhello"}) {
    CAPTURE(chunks);
    CHECK(frame_all_ways(head + chunks).status == 400);
  }
  CHECK(frame_all_ways(head + "5;" + std::string(300, 'x')).status == 400);
  CHECK(frame_all_ways(head + "0\r\nA: " + std::string(5000, 'x')).status == 431);
}

TEST_CASE("framer: limits") {
  FramerLimits limits;
  limits.head_bytes_max = 400;
  limits.headers_max = 4;
  limits.target_bytes_max = 100;
  limits.body_bytes_max = 10;
  const std::string start = "POST / HTTP/1.1\r\nHost: x\r\n";
  SECTION("request line") {
    const std::string target = "/" + std::string(99, 'a');
    CHECK(frame_all_ways("GET " + target + " HTTP/1.1\r\nHost: x\r\n\r\n", limits).state ==
          RequestFramer::State::complete);
    CHECK(frame_all_ways("GET " + target + "a HTTP/1.1\r\nHost: x\r\n\r\n", limits).status == 414);
    // Refused long before its end.
    const Outcome endless = frame(std::string(1 << 20, 'A'), 4096, limits);
    CHECK(endless.status == 414);
    CHECK(endless.taken < 8192);
  }
  SECTION("headers") {
    CHECK(frame_all_ways(start + "A: 1\r\nB: 2\r\nC: 3\r\n\r\n", limits).state ==
          RequestFramer::State::complete);
    CHECK(frame_all_ways(start + "A: 1\r\nB: 2\r\nC: 3\r\nD: 4\r\n\r\n", limits).status == 431);
    CHECK(frame_all_ways(start + "A: " + std::string(400, 'x') + "\r\n\r\n", limits).status == 431);
  }
  SECTION("bodies of both kinds") {
    CHECK(frame_all_ways(start + "Content-Length: 10\r\n\r\n0123456789", limits).state ==
          RequestFramer::State::complete);
    CHECK(frame_all_ways(start + "Content-Length: 11\r\n\r\n0123456789a", limits).status == 413);
    const std::string chunked = start + "Transfer-Encoding: chunked\r\n\r\n";
    CHECK(frame_all_ways(chunked + "5\r\n01234\r\n5\r\n56789\r\n0\r\n\r\n", limits).state ==
          RequestFramer::State::complete);
    const Outcome over = frame_all_ways(chunked + "5\r\n01234\r\n6\r\n56789a\r\n0\r\n\r\n", limits);
    CHECK(over.status == 413);
    CHECK(over.body.size() <= 10);
  }
}

}  // namespace tandem::service
