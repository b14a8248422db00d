// openloop: sends one fixed HTTP/1.1 request RATE times a second, whatever the server does. Latency counts from the INTENDED send time:
// a request that finds every connection busy waits for one, and the wait counts (no coordinated omission). One thread, epoll, timerfd.
//   g++ -O2 -std=c++17 openloop.cc -o openloop
//   ./openloop --port 8000 --path /v2/models/m/infer --body FILE -H 'Name: value' --rate 1000 --conns 4 --warmup 2 --duration 30
// Prints one JSON line. `latency`: from the intended time; `service`: from the actual send; `client_late`: how late this client itself
// noticed that a request was due, which is the scheduler's doing or the client's, never the server's.
// --overload: a 503 with Retry-After is an answer, too (`refused`: from the actual send); a connection that the server ends is an error like
// any other; what could not be sent by the end stays unsent. `good`: results that came during the measured time, whenever they were asked for.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <deque>
#include <string>
#include <vector>
using std::string;

static const int64_t SECOND_NS = 1000000000;
static const int64_t DRAIN_NS = 10 * SECOND_NS;

static int64_t now_ns() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * SECOND_NS + t.tv_nsec;
}

[[noreturn]] static void die(const string& why) {
  fprintf(stderr, "openloop: %s\n", why.c_str());
  exit(4);
}

static string slurp(const string& path) {
  FILE* f = fopen(path.c_str(), "rb");
  if (!f) die("cannot read " + path);
  string all;
  char block[65536];
  for (size_t n; (n = fread(block, 1, sizeof block, f)) > 0;) all.append(block, n);
  fclose(f);
  return all;
}

struct Options {
  string host = "127.0.0.1", path = "/", body;
  std::vector<string> headers;
  int port = 8000, conns = 4;
  double rate = 1000, warmup_s = 2, duration_s = 30;
  bool overload = false;
};

static Options parse(int argc, char** argv) {
  Options o;
  for (int i = 1; i < argc; i++) {
    string flag = argv[i];
    if (flag == "--overload") {
      o.overload = true;
      continue;
    }
    if (++i == argc) die("a value is missing after " + flag);
    string value = argv[i];
    if (flag == "--host") o.host = value;
    else if (flag == "--port") o.port = atoi(value.c_str());
    else if (flag == "--path") o.path = value;
    else if (flag == "--body") o.body = slurp(value);
    else if (flag == "-H") o.headers.push_back(value);
    else if (flag == "--conns") o.conns = atoi(value.c_str());
    else if (flag == "--rate") o.rate = atof(value.c_str());
    else if (flag == "--warmup") o.warmup_s = atof(value.c_str());
    else if (flag == "--duration") o.duration_s = atof(value.c_str());
    else die("unknown flag " + flag);
  }
  if (o.rate <= 0 || o.conns < 1) die("--rate and --conns must be positive");
  return o;
}

static string render(const Options& o) {
  string r = "POST " + o.path + " HTTP/1.1\r\nHost: " + o.host + "\r\nContent-Length: " + std::to_string(o.body.size()) + "\r\n";
  for (const string& h : o.headers) r += h + "\r\n";
  return r + "\r\n" + o.body;
}

struct Conn {
  int fd = -1;
  size_t sent = 0;  // bytes of the request
  bool measured = false, wants_write = false, answered = false;
  int64_t intended = 0, started = 0;
  string in;
};

static int connect_to(const Options& o) {
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
  sockaddr_in a{};
  a.sin_family = AF_INET;
  a.sin_port = htons(o.port);
  inet_pton(AF_INET, o.host.c_str(), &a.sin_addr);
  if (connect(fd, (sockaddr*)&a, sizeof a)) die(string("connect: ") + strerror(errno));
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
  return fd;
}

// Where the value of a header begins, npos without it.
static size_t header(const string& in, size_t head, const char* name) {
  for (size_t p = in.find("\r\n") + 2; p < head; p = in.find("\r\n", p) + 2)
    if (!strncasecmp(in.c_str() + p, name, strlen(name))) return p + strlen(name);
  return string::npos;
}

// The status once the response is complete, 0 before.
static int complete(const string& in) {
  size_t head = in.find("\r\n\r\n");
  if (head == string::npos) return 0;
  size_t length = header(in, head, "content-length:");
  if (length == string::npos) die("response without content-length");
  return in.size() < head + 4 + strtoul(in.c_str() + length, nullptr, 10) ? 0 : atoi(in.c_str() + 9);
}

static bool is_refusal(int status, const string& in) { return status == 503 && header(in, in.find("\r\n\r\n"), "retry-after:") != string::npos; }

static void print_quantiles(const char* name, std::vector<int64_t>& ns) {
  std::sort(ns.begin(), ns.end());
  auto at = [&](double q) { return ns.empty() ? 0.0 : ns[std::min(ns.size() - 1, size_t(q * ns.size()))] / 1e3; };
  printf(",\"%s_us\":{\"min\":%.1f,\"p1\":%.1f,\"p50\":%.1f,\"p90\":%.1f,\"p99\":%.1f,\"p999\":%.1f,\"max\":%.1f}", name, at(0), at(.01), at(.5), at(.9), at(.99), at(.999), at(1));
}

int main(int argc, char** argv) {
  Options o = parse(argc, argv);
  const string request = render(o);
  const int64_t interval = int64_t(SECOND_NS / o.rate);
  const long warm = long(o.warmup_s * o.rate), total = warm + long(o.duration_s * o.rate);

  int ep = epoll_create1(EPOLL_CLOEXEC), timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
  std::vector<Conn> conns(o.conns);
  std::deque<Conn*> idle;  // first free, first used: the load spreads over all connections
  auto watch = [&](int op, int fd, Conn* c, uint32_t events) {
    epoll_event e{};
    e.events = events;
    e.data.ptr = c;
    if (epoll_ctl(ep, op, fd, &e)) die("epoll_ctl");
  };
  for (Conn& c : conns) {
    c.fd = connect_to(o);
    watch(EPOLL_CTL_ADD, c.fd, &c, EPOLLIN);
    idle.push_back(&c);
  }
  watch(EPOLL_CTL_ADD, timer, nullptr, EPOLLIN);

  const int64_t origin = now_ns() + 20000000;
  itimerspec every{{interval / SECOND_NS, interval % SECOND_NS}, {origin / SECOND_NS, origin % SECOND_NS}};
  if (timerfd_settime(timer, TFD_TIMER_ABSTIME, &every, nullptr)) die("timerfd_settime");
  auto intended = [&](long i) { return origin + i * interval; };

  long noticed = 0, started = 0, finished = 0, errors = 0, good = 0, most_waiting = 0;
  string first_error;
  std::vector<int64_t> latency, service, refused, late;
  latency.reserve(total), service.reserve(total), late.reserve(total);
  if (o.overload) refused.reserve(total);

  auto failed = [&](const string& why) {
    if (errors++ == 0) first_error = why;
  };
  auto lost = [&](Conn* c, const string& why) {
    if (!o.overload) die(why);
    failed(why);
    close(c->fd);
    bool was_free = std::find(idle.begin(), idle.end(), c) != idle.end();
    if (!was_free && !c->answered) finished++;
    c->fd = connect_to(o), c->in.clear(), c->wants_write = c->answered = false, c->sent = request.size();
    watch(EPOLL_CTL_ADD, c->fd, c, EPOLLIN);
    if (!was_free) idle.push_back(c);
  };
  auto release = [&](Conn* c) {
    c->answered = false;
    idle.push_back(c);
  };
  auto push = [&](Conn* c) {
    while (c->sent < request.size()) {
      ssize_t n = send(c->fd, request.data() + c->sent, request.size() - c->sent, MSG_NOSIGNAL);
      if (n < 0 && errno == EAGAIN) break;
      if (n < 0) return lost(c, string("send: ") + strerror(errno));
      c->sent += n;
    }
    bool wants = c->sent < request.size();
    if (wants != c->wants_write) watch(EPOLL_CTL_MOD, c->fd, c, wants ? EPOLLIN | EPOLLOUT : EPOLLIN);
    c->wants_write = wants;
    if (!wants && c->answered) release(c);
  };
  auto pull = [&](Conn* c) {
    static char block[1 << 16];
    for (;;) {
      ssize_t n = recv(c->fd, block, sizeof block, 0);
      if (n < 0 && errno == EAGAIN) break;
      if (n < 0) return lost(c, string("recv: ") + strerror(errno));
      if (n == 0) return lost(c, "the server closed a connection");
      c->in.append(block, n);
      if (size_t(n) < sizeof block) break;
    }
    int status = complete(c->in);
    if (!status) return;
    int64_t t = now_ns();
    bool is_refused = o.overload && is_refusal(status, c->in);
    if (status != 200 && !is_refused) failed("HTTP " + std::to_string(status) + " " + c->in.substr(c->in.find("\r\n\r\n") + 4, 200));
    if (c->measured && is_refused) refused.push_back(t - c->started);
    else if (c->measured) latency.push_back(t - c->intended), service.push_back(t - c->started);
    good += status == 200 && t >= intended(warm) && t < intended(total);
    finished++;
    c->in.clear();
    // An answer may come before the whole request has been sent: the next one goes behind it.
    c->sent == request.size() ? release(c) : void(c->answered = true);
  };

  epoll_event ready[64];
  const int64_t give_up = intended(total) + DRAIN_NS;
  while (finished < total && now_ns() < give_up) {
    if (o.overload && noticed == total && finished == started) break;
    int n = epoll_wait(ep, ready, 64, 100);
    for (int i = 0; i < n; i++) {
      Conn* c = (Conn*)ready[i].data.ptr;
      if (!c) {
        uint64_t ticks;
        if (read(timer, &ticks, sizeof ticks) < 0 && errno != EAGAIN) die("timer");
        continue;
      }
      if (ready[i].events & EPOLLOUT) push(c);
      if (ready[i].events & (EPOLLIN | EPOLLERR | EPOLLHUP)) pull(c);
    }
    int64_t t = now_ns();
    for (; noticed < total && intended(noticed) <= t; noticed++)
      if (noticed >= warm) late.push_back(t - intended(noticed));
    for (; started < noticed && !idle.empty() && !(o.overload && noticed == total); started++) {
      Conn* c = idle.front();
      idle.pop_front();
      c->intended = intended(started), c->measured = started >= warm, c->sent = 0, c->started = now_ns();
      push(c);
    }
    most_waiting = std::max(most_waiting, noticed - started);
  }

  for (char& ch : first_error) if (ch == '"' || ch == '\\' || (unsigned char)ch < 32) ch = '\'';
  const long unsent = o.overload ? total - started : 0, unanswered = total - unsent - finished;
  printf("{\"n\":%zu,\"errors\":%ld,\"unanswered\":%ld,\"rate\":%.3f,\"most_waiting\":%ld,\"first_error\":\"%s\"", latency.size(), errors, unanswered, o.rate, most_waiting, first_error.c_str());
  printf(",\"refusals\":%zu,\"good\":%ld,\"unsent\":%ld", refused.size(), good, unsent);
  print_quantiles("latency", latency);
  print_quantiles("service", service);
  print_quantiles("refused", refused);
  print_quantiles("client_late", late);
  printf("}\n");
  return errors || unanswered ? 1 : 0;
}
