package browser

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"math"
)

const (
	maxSide   = 16384     // pixels; Chrome draws nothing beyond
	maxPixels = 100 << 20 // of one picture
	maxPDF    = 64 << 20
)

// Shot is how a picture is taken.
type Shot struct {
	Target   Target // nothing is the page
	FullPage bool
	Format   string // png, jpeg or webp
	Quality  int    // of jpeg and webp, 0 is Chrome's own choice
}

// Picture is a picture in base64, with its size: of an element the whole CSS
// pixels of its box, else of the image.
type Picture struct {
	Base64        string
	Width, Height int
}

// Screenshot takes a picture.
func (p *Page) Screenshot(ctx context.Context, s Shot) (Picture, error) {
	params := object{"format": s.Format}
	if s.Quality > 0 && s.Format != "png" {
		params["quality"] = s.Quality
	}
	var out Picture
	var clip rect
	switch {
	case s.Target != Target{}:
		there, err := p.there(ctx, s.Target)
		if err != nil {
			return out, err
		}
		if !there {
			return out, ErrNoElement
		}
		at, err := p.ready(ctx, s.Target, need{})
		if err != nil {
			return out, err
		}
		out.Width, out.Height = int(at.Box.Width), int(at.Box.Height)
		clip = rect{at.Box.X + at.Scroll.X, at.Box.Y + at.Scroll.Y, at.Box.Width, at.Box.Height}
	case s.FullPage:
		var m struct {
			Content rect `json:"cssContentSize"`
		}
		if err := p.call(ctx, "Page.getLayoutMetrics", nil, &m); err != nil {
			return out, err
		}
		clip = m.Content
	}
	if clip.Width > 0 {
		clip.Width, clip.Height = max(1, math.Ceil(clip.Width)), max(1, math.Ceil(clip.Height))
		if clip.Width > maxSide || clip.Height > maxSide || clip.Width*clip.Height > maxPixels {
			return out, failure("The picture would be too large: %.0f × %.0f", clip.Width, clip.Height)
		}
		params["captureBeyondViewport"] = true
		params["clip"] = object{"x": clip.X, "y": clip.Y, "width": clip.Width, "height": clip.Height, "scale": 1}
	}
	var got struct {
		Data string `json:"data"`
	}
	if err := p.call(ctx, "Page.captureScreenshot", params, &got); err != nil {
		return out, err
	}
	out.Base64 = got.Data
	if out.Width == 0 {
		out.Width, out.Height = pixels(got.Data)
	}
	return out, nil
}

// pixels reads the size of an image from its first bytes.
func pixels(b64 string) (width, height int) {
	head := b64[:min(len(b64), 64<<10)]
	b, _ := base64.StdEncoding.DecodeString(head[:len(head)/4*4])
	switch {
	case len(b) >= 24 && string(b[1:4]) == "PNG":
		return int(binary.BigEndian.Uint32(b[16:])), int(binary.BigEndian.Uint32(b[20:]))
	case len(b) >= 30 && string(b[:4]) == "RIFF" && string(b[8:12]) == "WEBP":
		return webpSize(b)
	case len(b) > 4 && b[0] == 0xff && b[1] == 0xd8:
		return jpegSize(b)
	}
	return 0, 0
}

func webpSize(b []byte) (width, height int) {
	switch string(b[12:16]) {
	case "VP8 ":
		return int(binary.LittleEndian.Uint16(b[26:]) & 0x3fff), int(binary.LittleEndian.Uint16(b[28:]) & 0x3fff)
	case "VP8L":
		bits := binary.LittleEndian.Uint32(b[21:])
		return int(bits&0x3fff) + 1, int(bits>>14&0x3fff) + 1
	case "VP8X":
		return 1 + int(b[24]) + int(b[25])<<8 + int(b[26])<<16, 1 + int(b[27]) + int(b[28])<<8 + int(b[29])<<16
	}
	return 0, 0
}

// jpegSize walks the segments up to the frame header.
func jpegSize(b []byte) (width, height int) {
	for i := 2; i+9 < len(b) && b[i] == 0xff; {
		kind := b[i+1]
		if kind >= 0xc0 && kind <= 0xcf && kind != 0xc4 && kind != 0xc8 && kind != 0xcc {
			return int(binary.BigEndian.Uint16(b[i+7:])), int(binary.BigEndian.Uint16(b[i+5:]))
		}
		i += 2 + int(binary.BigEndian.Uint16(b[i+2:]))
	}
	return 0, 0
}

// PDF prints the page. pages is how many it takes.
func (p *Page) PDF(ctx context.Context, paper Paper, landscape bool) (pdf []byte, pages int, err error) {
	var out struct {
		Stream string `json:"stream"`
	}
	err = p.call(ctx, "Page.printToPDF", object{
		"paperWidth": paper.Width, "paperHeight": paper.Height, "landscape": landscape, "transferMode": "ReturnAsStream",
		"marginTop": 0, "marginBottom": 0, "marginLeft": 0, "marginRight": 0,
	}, &out)
	if err != nil {
		return nil, 0, err
	}
	defer p.post("IO.close", object{"handle": out.Stream})
	for {
		var part struct {
			Data    string `json:"data"`
			Encoded bool   `json:"base64Encoded"`
			End     bool   `json:"eof"`
		}
		if err := p.call(ctx, "IO.read", object{"handle": out.Stream, "size": 1 << 20}, &part); err != nil {
			return nil, 0, err
		}
		data := []byte(part.Data)
		if part.Encoded {
			if data, err = base64.StdEncoding.DecodeString(part.Data); err != nil {
				return nil, 0, err
			}
		}
		if pdf = append(pdf, data...); len(pdf) > maxPDF {
			return nil, 0, failure("The PDF is too large")
		}
		if part.End {
			return pdf, pageCount(pdf), nil
		}
	}
}
